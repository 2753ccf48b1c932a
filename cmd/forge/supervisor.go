package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// supervisor notifies systemd of the node's state. It does nothing unless systemd started this
// process with Type=notify.
type supervisor struct {
	logger *slog.Logger
	// stopTimeout is how long the node may take to stop.
	stopTimeout time.Duration
	// send sends one line of systemd's protocol.
	send func(state string) (bool, error)
	// watchdogInterval is how long systemd waits for a keep-alive message. 0 means no limit.
	watchdogInterval time.Duration
}

// afterDrain is how long a node may take to stop after its jobs have ended or were given up, if
// the database does not answer.
const afterDrain = 30 * time.Second

func newSupervisor(drainTimeout time.Duration, logger *slog.Logger) *supervisor {
	s := &supervisor{logger: logger, stopTimeout: drainTimeout + afterDrain, send: func(state string) (bool, error) { return daemon.SdNotify(false, state) }}
	var err error
	if s.watchdogInterval, err = daemon.SdWatchdogEnabled(false); err != nil {
		s.watchdogInterval = 0
		logger.Warn("cannot read the supervisor's watchdog interval", "error", err)
	}
	return s
}

func (s *supervisor) notify(state string) {
	if _, err := s.send(state); err != nil {
		s.logger.Warn("cannot notify the supervisor", "state", state, "error", err)
	}
}

// ready notifies systemd that the node accepts jobs.
func (s *supervisor) ready() { s.notify(daemon.SdNotifyReady) }

// watch sends keep-alive messages at a third of the watchdog interval. When ctx ends, it tells systemd
// that the node begins to stop, and for how long at most: a unit with a shorter TimeoutStopSec would
// kill a node that drains. Keep-alive messages continue until stop is called, because a node that
// drains is alive.
func (s *supervisor) watch(ctx context.Context) (stop func()) {
	ended := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		stopping := ctx.Done()
		var keepAlive <-chan time.Time
		if s.watchdogInterval > 0 {
			ticker := time.NewTicker(s.watchdogInterval / 3)
			defer ticker.Stop()
			keepAlive = ticker.C
		}
		for {
			select {
			case <-ended:
				return
			case <-stopping:
				stopping = nil
				s.notify(daemon.SdNotifyStopping)
				s.notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", s.stopTimeout.Microseconds()))
			case <-keepAlive:
				s.notify(daemon.SdNotifyWatchdog)
			}
		}
	})
	return func() {
		close(ended)
		wait.Wait()
	}
}
