package nodes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// shownLines is how much of a process's output a failed test prints.
const shownLines = 60

// Build builds one of forge's programs into dir, as static as it is released, with build
// tags if any are given, and returns its path. Another user may run it. It also works in a
// module that requires forge's.
func Build(dir, program string, tags ...string) (string, error) {
	path := filepath.Join(dir, filepath.Base(program))
	args := []string{"build", "-ldflags=-w", "-o", path}
	if len(tags) > 0 {
		args = append(args, "-tags", strings.Join(tags, ","))
	}
	unlock, err := lockBuilds()
	if err != nil {
		return "", fmt.Errorf("wait for other builds: %w", err)
	}
	defer unlock()
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", strings.TrimSuffix(module, "/")).Output() //nolint:noctx // it ends
	if err != nil {
		return "", fmt.Errorf("find forge's module: %w", err)
	}
	cmd := exec.Command("go", append(args, module+program)...) //nolint:gosec,noctx // our own; it ends
	cmd.Dir = strings.TrimSpace(string(root))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return path, os.Chmod(dir, 0o755) //nolint:gosec // another user runs it
}

// lockBuilds lets the packages that are tested at the same time build one after the
// other: most of what the first one compiles is in the cache for the next.
func lockBuilds() (unlock func(), err error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("forge-test-build-%d.lock", os.Getuid()))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil { //nolint:gosec // a descriptor
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}

const module = "github.com/forge-scheduler/forge/"

// OpenDir makes a directory that every user may enter, unlike tb.TempDir's, and
// that goes with the test: PostgreSQL does not run as root.
func OpenDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "forge-test-") //nolint:usetesting // see above
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // no secrets in it
		tb.Fatal(err)
	}
	return dir
}

// Environment is this process's, without what forge would read from it.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "FORGE_") || strings.HasPrefix(pair, "DATABASE_URL=")
	})
}

// Process is one running command.
type Process struct {
	*exec.Cmd

	done chan struct{}
	err  error
}

// Start runs a program with more in its environment. It writes what it prints to
// output. Whoever starts it waits for Done.
func Start(program string, output io.Writer, env []string, args ...string) (*Process, error) {
	return Run(command(program, output, env, args...))
}

func command(program string, output io.Writer, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...) //nolint:gosec,noctx // one of our builds; its starter ends it
	cmd.Env = append(Environment(), env...)
	cmd.Stdout, cmd.Stderr = output, output
	return cmd
}

// Run does so with any command.
func Run(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Cmd: cmd, done: make(chan struct{})}
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.Wait()
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how it ended, once it has.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Kill ends the process at once, also one that is stopped, and waits for it.
func (p *Process) Kill() {
	_ = p.Process.Kill() // it may be gone
	<-p.done
}

// EndedBy returns the signal that ended the process; 0: none did.
func (p *Process) EndedBy() syscall.Signal {
	<-p.done
	if status, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal()
	}
	return 0
}

// Launch starts a program that is killed when the test ends, and whose output a
// failed test prints.
func Launch(tb testing.TB, program string, env []string, args ...string) (*Process, *Output) {
	tb.Helper()
	return LaunchWithin(tb, nil, program, env, args...)
}

// LaunchWithin does so with another root or user.
func LaunchWithin(tb testing.TB, within *syscall.SysProcAttr, program string, env []string, args ...string) (*Process, *Output) {
	tb.Helper()
	output := &Output{}
	cmd := command(program, output, env, args...)
	if within != nil {
		cmd.SysProcAttr, cmd.Dir = within, "/"
	}
	p, err := Run(cmd)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			tb.Logf("output of %s:\n%s", strings.Join(args, " "), Tail(output.String(), shownLines))
		}
	})
	return p, output
}

// Output is what a process has printed so far.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Tail returns the last lines of a text.
func Tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
