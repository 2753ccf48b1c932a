package watchdog_test

import (
	"errors"
	"runtime"
	"syscall"
	"testing"

	"github.com/forge-scheduler/forge/internal/watchdog"
)

// Only the thread of the work gets the higher priority.
func TestOnlyWorkThreadGetsPriority(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := priority(t)
	wanted := errors.New("the work's")
	var self int
	err := watchdog.RunHighPriority(func() error {
		self = priority(t)
		return wanted
	})
	if !errors.Is(err, wanted) {
		t.Errorf("Run returned %v", err)
	}
	if mayRaisePriority() && self <= before || self < before {
		t.Errorf("the thread's priority is %d, that of others %d", self, before)
	}
	if after := priority(t); after != before {
		t.Errorf("this thread's priority is %d, it was %d", after, before)
	}
}

// mayRaisePriority reports whether this process may raise a thread's priority.
func mayRaisePriority() bool {
	allowed := make(chan bool)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		allowed <- syscall.Setpriority(syscall.PRIO_PROCESS, 0, -1) == nil
	}()
	return <-allowed
}

// priority returns the priority of the calling thread: 20 minus its nice value.
func priority(t *testing.T) int {
	t.Helper()
	p, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		t.Error(err)
	}
	return p
}
