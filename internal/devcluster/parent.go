package devcluster

import (
	"context"
	"io"
	"os"
	"time"
)

const (
	// envLifeline, when set, means that the node's standard input is a pipe held by the
	// cluster. It does not begin with FORGE_: those names are configuration keys.
	envLifeline = "DEVCLUSTER_LIFELINE"
	// envMake, when set, means that the cluster's parent is make; the cluster ends when
	// make does.
	envMake = "DEVCLUSTER_UNDER_MAKE"

	parentPoll = 250 * time.Millisecond
)

// DieWithParent ends this process with SIGKILL's exit code as soon as the cluster that
// started it has died. In a process that no cluster started it does nothing. Call it
// first in the serve command: it removes its variable from the environment. Its goroutine
// lives as long as the process.
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

// endWithMake ends ctx when the parent is make and has died: make passes Ctrl-C on, but a
// killed make sends no signal.
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
