package devcluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// Names in the launcher's directory.
const (
	lockName     = "lock"
	passwordName = "password"
	portName     = "port"
	pgdataName   = "pgdata"
	logName      = "postgres.log"

	maxLogSize = 10 << 20
	// A server whose launcher was killed is still writing its checkpoint.
	predecessorTimeout = 20 * time.Second
	// The supervisor needs a moment to notice that its launcher is dead.
	holderTimeout = 500 * time.Millisecond
)

// dataDir is the launcher's directory, locked.
type dataDir struct {
	path      string
	major     int // of the existing data; 0 when there is none
	ephemeral bool
	lock      *flock.Flock
	log       *os.File
	password  string
}

// holder is the content of the lock file, for a launcher that finds it locked.
type holder struct {
	Launcher   int `json:"launcher"` // 0 when the server is being stopped
	Supervisor int `json:"supervisor"`
}

func openDir(req request) (*dataDir, error) {
	d := &dataDir{path: req.DataDir, ephemeral: req.Ephemeral}
	var err error
	if d.lock, err = acquire(d.file(lockName), req.Launcher); err != nil {
		return nil, err
	}
	if d.major, err = d.readMajor(); err != nil {
		return nil, errors.Join(err, d.lock.Close())
	}
	if d.ephemeral && d.major != 0 {
		return nil, errors.Join(fmt.Errorf("%s holds data and cannot be ephemeral", d.path), d.lock.Close())
	}
	if d.log, err = openLog(d.file(logName)); err != nil {
		return nil, errors.Join(err, d.lock.Close())
	}
	return d, nil
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }
func (d *dataDir) pgdata() string          { return d.file(pgdataName) }

func (d *dataDir) close() {
	_ = d.log.Close()
	if d.ephemeral {
		_ = os.RemoveAll(d.path)
	}
	_ = d.lock.Close()
}

// acquire takes the lock, or returns an error that names the holder. It waits only for a
// server that is being stopped.
func acquire(path string, launcher int) (*flock.Flock, error) {
	lock := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		locked, err := lock.TryLock()
		if err != nil {
			return nil, fmt.Errorf("lock the data directory: %w", err)
		}
		if locked {
			break
		}
		by := readHolder(path)
		timeout := predecessorTimeout
		if by.Launcher != 0 {
			timeout = holderTimeout
		}
		if time.Since(began) > timeout {
			return nil, fmt.Errorf("the data directory %s is in use by process %d (its PostgreSQL is watched by process %d)",
				filepath.Dir(path), by.Launcher, by.Supervisor)
		}
	}
	if err := writeHolder(path, launcher); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// stopping marks the lock file so that the next launcher waits for this server's end.
func (d *dataDir) stopping() { _ = writeHolder(d.file(lockName), 0) }

func writeHolder(path string, launcher int) error {
	body, err := json.Marshal(holder{Launcher: launcher, Supervisor: os.Getpid()})
	if err == nil {
		err = os.WriteFile(path, body, 0o600)
	}
	if err != nil {
		return fmt.Errorf("record who holds the data directory: %w", err)
	}
	return nil
}

// readHolder reads the content that acquire wrote; an unreadable file belongs to a
// launcher that has just taken the lock.
func readHolder(path string) holder {
	var by holder
	body, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(body, &by) != nil {
		return holder{}
	}
	return by
}

// readMajor returns the major version of the data, 0 when there is none.
func (d *dataDir) readMajor() (int, error) {
	if _, err := os.Stat(d.file("PG_VERSION")); err == nil {
		return 0, fmt.Errorf("%s is a PostgreSQL data directory that forge did not make: choose another one", d.path)
	}
	body, err := os.ReadFile(filepath.Join(d.pgdata(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the data: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(body)))
	if err != nil {
		return 0, fmt.Errorf("read the version of the data in %s: %w", d.pgdata(), err)
	}
	return major, nil
}

// initialise creates the data when there is none. It creates the data in a temporary
// directory and renames it, so that a launcher killed half-way leaves nothing that looks
// like data.
func (d *dataDir) initialise(ctx context.Context, programs programs, durable bool, say func(string)) (err error) {
	if d.major != 0 {
		d.password, err = readPassword(d.file(passwordName))
		return err
	}
	say("making a new data directory " + d.pgdata())
	d.password = rand.Text()
	if err := os.WriteFile(d.file(passwordName), []byte(d.password+"\n"), 0o600); err != nil {
		return fmt.Errorf("keep the server's password: %w", err)
	}
	fresh := d.file(pgdataName + ".new")
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("remove an unfinished data directory: %w", err)
	}
	if err := initdb(ctx, programs, fresh, d.file(passwordName), durable); err != nil {
		return err
	}
	if err := os.Rename(fresh, d.pgdata()); err != nil {
		return fmt.Errorf("put the new data directory in its place: %w", err)
	}
	return nil
}

func initdb(ctx context.Context, programs programs, pgdata, passwordFile string, durable bool) error {
	args := []string{
		"--pgdata=" + pgdata, "--username=postgres", "--auth=scram-sha-256", "--pwfile=" + passwordFile,
		"--encoding=UTF8", "--locale=C", "--no-instructions",
	}
	if !durable {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, programs.path("initdb"), args...)
	cmd.Env = serverEnv()
	cmd.SysProcAttr = endWithSupervisor()
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make a data directory with %s: %w: %s", cmd.Path, err, bytes.TrimSpace(output))
	}
	return nil
}

func readPassword(path string) (string, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the server's password: %w", err)
	}
	return strings.TrimSpace(string(body)), nil
}

// openLog opens the log for appending and moves a long one aside first.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogSize {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("put PostgreSQL's log aside: %w", err)
		}
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open PostgreSQL's log: %w", err)
	}
	return log, nil
}

// logTail returns the log lines since offset that explain the server's end: its fatal
// messages with their hints, or its last line.
func (d *dataDir) logTail(offset int64) string {
	body, err := io.ReadAll(io.NewSectionReader(d.log, offset, maxLogSize))
	if err != nil || len(body) == 0 {
		return "its log is " + d.file(logName)
	}
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	var telling []string
	for _, line := range lines {
		if strings.Contains(line, "FATAL: ") || strings.Contains(line, "PANIC: ") || strings.Contains(line, "HINT: ") {
			telling = append(telling, line)
		}
	}
	if len(telling) == 0 {
		telling = lines[len(lines)-1:]
	}
	return strings.Join(telling, "; ") + " (log: " + d.file(logName) + ")"
}
