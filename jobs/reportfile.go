package jobs

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/shim"
)

const (
	reportPattern = "forge-report-*"
	// minUnusedAge is the age from which a report without a lock is removed: a new one is locked soon
	// after it was created.
	minUnusedAge = time.Minute
)

// reportFile is the file to which a command appends its report. A file and not a pipe:
// any language can append to it, every child process can, nobody waits for a reader, and
// what was written before a crash is there.
type reportFile struct {
	file *os.File // nil without one
	path string
}

// newReportFile creates the file for the user of a command; nil means the node's. A command
// runs without one if it cannot be created, for example because there is no /tmp.
func newReportFile(a *attempt, owner *shim.Credential) *reportFile {
	file, err := os.CreateTemp("", reportPattern) // for this user only
	if err == nil && owner != nil {
		err = file.Chown(int(owner.UID), int(owner.GID))
	}
	if err != nil {
		a.output.remark("report: none is read: " + err.Error())
		if file != nil {
			(&reportFile{file, file.Name()}).remove()
		}
		return &reportFile{}
	}
	lockReport(file) // for removeUnusedReports of other nodes
	return &reportFile{file, file.Name()}
}

// removeUnusedReports removes the reports that nodes have left which were killed. A report of a
// running node is locked. It takes no longer than ctx.
func removeUnusedReports(ctx context.Context) {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), reportPattern)) // the pattern is valid
	for _, path := range left {
		if ctx.Err() != nil {
			return
		}
		if unusedReport(path) {
			_ = os.Remove(path) // it may belong to another user
		}
	}
}

func unusedReport(path string) bool {
	file, err := os.OpenFile(path, openReport, 0)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	return err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > minUnusedAge && lockReport(file)
}

// poll reads what was appended. It reads the file that was created, whatever is at its
// path now.
func (f *reportFile) poll(into io.Writer) {
	if f.file != nil {
		_, _ = io.Copy(into, io.LimitReader(f.file, maxReport+1)) // what is beyond counts as not written
	}
}

func (f *reportFile) remove() {
	if f.file != nil {
		_ = f.file.Close()
		_ = os.Remove(f.path) // a command may have removed it
	}
}

// storeProgress returns the function that stores the progress of an attempt.
func storeProgress(options Options, a *attempt) func(context.Context, jobstore.Progress) error {
	return func(ctx context.Context, progress jobstore.Progress) error {
		client := options.NodeID + "-" + options.Incarnation
		return jobstore.New(options.Pool).SetProgress(ctx, a.JobID, client, progress)
	}
}
