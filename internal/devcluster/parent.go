package devcluster

import (
	"context"
	"io"
	"os"
	"time"
)

const (
	// envLifeline tells a node that its standard input is a pipe held by the
	// cluster. It does not begin with FORGE_: those name configuration keys.
	envLifeline = "DEVCLUSTER_LIFELINE"
	// envMake tells the cluster that its parent is make, whose end it shares.
	envMake = "DEVCLUSTER_UNDER_MAKE"

	parentPoll = 250 * time.Millisecond
)

// DieWithParent ends this process with SIGKILL's exit code as soon as the
// cluster that started it has died; in a process that no cluster started it
// does nothing. Call it first thing in the serve command: it takes its variable
// out of the environment. Its goroutine lives as long as the process.
func DieWithParent() {
	if os.Getenv(envLifeline) == "" {
		return
	}
	_ = os.Unsetenv(envLifeline)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(128 + 9)
	}()
}

// endWithMake ends ctx when our parent is make and has died: make passes
// Ctrl-C on, but nothing tells us of its own killing.
func endWithMake(ctx context.Context) (watched context.Context, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	if os.Getenv(envMake) == "" {
		return ctx, cancel
	}
	parent := os.Getppid()
	done := make(chan struct{})
	go func() {
		defer close(done)
		poll := time.NewTicker(parentPoll)
		defer poll.Stop()
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-poll.C:
			}
		}
		cancel()
	}()
	return ctx, func() {
		cancel()
		<-done
	}
}
