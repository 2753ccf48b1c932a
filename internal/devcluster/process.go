package devcluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// A node that gets SIGTERM drains; its own limit is shorter than this.
	drainTimeout = 2 * time.Minute

	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
	// After a node has run for this long, its next restart begins again with the shortest
	// pause.
	healthyLife = 10 * time.Second
	// Output of a killed node that its children hold back for longer than this is lost.
	outputTimeout = time.Second

	// Exit codes of forge for errors that a restart does not fix.
	exitUsage  = 2
	exitConfig = 3
)

// process is a node that is restarted when it ends.
type process struct {
	node   Node
	c      *cluster
	logger *slog.Logger
	pid    atomic.Int64
	starts atomic.Int64
}

func newProcess(c *cluster, index int, address string) *process {
	return &process{
		c: c, logger: c.logger,
		node: Node{
			ID: fmt.Sprintf("node-%d", index+1), Listen: address,
			ConfigPath: c.ConfigPath, DatabaseURL: c.database.URL(),
		},
	}
}

// run restarts the node until ctx ends and the node has stopped.
func (p *process) run(ctx context.Context) {
	// The kernel ends the node when the thread that started it ends, so the thread has to
	// stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := p.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if code := exitCode(err); code == exitUsage || code == exitConfig {
			p.c.fail(fmt.Errorf("%s cannot run: %w (its log above says why)", p.node.ID, err))
			return
		}
		if time.Since(began) > healthyLife {
			pause = firstPause
		}
		p.logger.WarnContext(ctx, "node ended, starting it again",
			"name", p.node.ID, "pid", p.pid.Load(), "reason", reason(err), "in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longPause)
	}
}

// runOnce runs the node until it ends.
func (p *process) runOnce(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, p.c.Executable, p.c.Args(p.node)...)
	cmd.Env = p.environ()
	cmd.SysProcAttr = nodeAttributes()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = drainTimeout
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer func() { _ = lifeline.Close() }()
	output, input, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = input, input
	err = cmd.Start()
	_ = input.Close()
	if err != nil {
		_ = output.Close()
		return err
	}
	p.pid.Store(int64(cmd.Process.Pid))
	p.starts.Add(1)
	relayed := p.relay(ctx, output)
	stopHurrying := context.AfterFunc(p.c.forceStop, func() { _ = cmd.Process.Kill() }) //nolint:contextcheck // it outlives ctx
	err = cmd.Wait()
	stopHurrying()
	_ = output.SetReadDeadline(time.Now().Add(outputTimeout))
	<-relayed
	return err
}

// relay passes the node's lines on until its output ends.
func (p *process) relay(ctx context.Context, output io.ReadCloser) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = output.Close() }()
		lines := bufio.NewReaderSize(output, 1<<20)
		for {
			line, _, err := lines.ReadLine()
			if len(line) > 0 {
				p.c.log.line(ctx, p.node.ID, line)
			}
			if err != nil {
				return
			}
		}
	}()
	return done
}

// environ returns this process's environment with the node's database in place of any
// other.
func (p *process) environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"DATABASE_URL", "FORGE_DATABASE_URL", "FORGE_DATABASE_LEADER_URL", envMake}, name)
	})
	env = append(env,
		"FORGE_DATABASE_URL="+p.node.DatabaseURL,
		"FORGE_DATABASE_LEADER_URL="+p.node.DatabaseURL, // the file may name another database
		envLifeline+"=1")
	return append(env, p.c.Env...)
}

func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return 0
}

func reason(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}
