package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// supervisor is systemd, where it started this process with Type=notify. Where it
// did not nothing is said to anybody.
type supervisor struct {
	logger *slog.Logger
	// tell sends one line of systemd's protocol.
	tell func(state string) (bool, error)
	// patience is how long systemd waits for a sign of life; 0: for ever.
	patience time.Duration
}

func newSupervisor(logger *slog.Logger) *supervisor {
	s := &supervisor{logger: logger, tell: func(state string) (bool, error) { return daemon.SdNotify(false, state) }}
	var err error
	if s.patience, err = daemon.SdWatchdogEnabled(false); err != nil {
		s.patience = 0
		logger.Warn("the supervisor's watchdog cannot be served", "error", err)
	}
	return s
}

func (s *supervisor) say(state string) {
	if _, err := s.tell(state); err != nil {
		s.logger.Warn("the supervisor cannot be told", "state", state, "error", err)
	}
}

// ready says that the node takes jobs.
func (s *supervisor) ready() { s.say(daemon.SdNotifyReady) }

// watch shows that the process turns, as often as the supervisor wants to see it,
// and says when it begins to stop. The signs go on until the function that it
// returns is called: a node that drains is alive.
func (s *supervisor) watch(ctx context.Context) (stop func()) {
	ended := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		stopping := ctx.Done()
		var signs <-chan time.Time
		if s.patience > 0 {
			ticker := time.NewTicker(s.patience / 3)
			defer ticker.Stop()
			signs = ticker.C
		}
		for {
			select {
			case <-ended:
				return
			case <-stopping:
				stopping = nil
				s.say(daemon.SdNotifyStopping)
			case <-signs:
				s.say(daemon.SdNotifyWatchdog)
			}
		}
	})
	return func() {
		close(ended)
		wait.Wait()
	}
}
