package jobs

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// The last line within the bound of a report counts, wherever the writes divide it.
func TestReportReadsLastLineWithinItsBound(t *testing.T) {
	t.Parallel()
	a := &attempt{}
	a.output.init(newLogWriter(nil, slog.New(slog.DiscardHandler)), 1, 1)
	r := newReport(a, func(context.Context, jobstore.Progress) error { return nil }, nil)
	defer r.timer.Stop()
	for _, part := range []string{strings.Repeat("\n", maxReport-40) + `{"progress":`, " 42}\n" + strings.Repeat(" ", 100) + `{"progress": 50}` + "\n"} {
		if n, err := r.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("wrote %d of %d bytes: %v", n, len(part), err)
		}
	}
	if r.progress == nil || *r.progress.Percent != 42 || r.bad != 0 {
		t.Errorf("got %+v and %d bad lines", r.progress, r.bad)
	}
}
