//go:build unix

package shim

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// leashLook is the longest interval between two checks of the clock while a command is on
// a leash: timers do not advance while the machine is suspended.
const leashLook = 500 * time.Millisecond

// NewLeash converts two instants of this process's own clock.
func NewLeash(stopAt, killBy time.Time) Leash {
	now := clock()
	return Leash{StopAt: now + time.Until(stopAt), KillBy: now + time.Until(killBy)}
}

// supervisor waits for a command's end, or ends it.
type supervisor struct {
	pid   int
	grace time.Duration
	leash *Leash

	stopping bool
	killAt   time.Duration // end of the grace
	expired  bool
	// quit is true when this shim takes no other command: it was told to end.
	quit bool
}

func (s *supervisor) run(exited <-chan syscall.WaitStatus, signals <-chan os.Signal, orders <-chan order) syscall.WaitStatus {
	for {
		timer := time.NewTimer(s.next(clock()))
		select {
		case status := <-exited:
			timer.Stop()
			return status
		case <-signals:
			s.quit = true
			s.stop(syscall.SIGTERM)
		case o, open := <-orders:
			if !open {
				orders, s.quit = nil, true
				s.stop(syscall.SIGTERM)
			}
			s.obey(o)
		case <-timer.C:
		}
		timer.Stop()
		if s.judge(clock()) {
			return s.kill(exited)
		}
	}
}

func (s *supervisor) obey(o order) {
	if o.Leash != nil {
		s.leash = o.Leash
	}
	if o.Signal != 0 {
		_ = syscall.Kill(s.pid, o.Signal)
	}
	if o.Stop != 0 {
		s.stop(o.Stop)
	}
}

// stop sends the first signal.
func (s *supervisor) stop(with syscall.Signal) {
	if s.stopping {
		return
	}
	s.stopping, s.killAt = true, clock()+s.grace
	for _, p := range descendants(s.pid) {
		_ = syscall.Kill(p, with)
	}
}

// judge stops a command whose leash has run out, and reports whether it must be killed.
func (s *supervisor) judge(now time.Duration) bool {
	if s.leash != nil && now >= s.leash.StopAt && !s.stopping {
		s.expired = true
		s.stop(syscall.SIGTERM)
	}
	return s.stopping && now >= s.killAt || s.leash != nil && now >= s.leash.KillBy
}

// next returns the time until the next action.
func (s *supervisor) next(now time.Duration) time.Duration {
	wait := time.Hour
	if s.stopping {
		wait = s.killAt - now
	}
	if s.leash != nil {
		wait = min(wait, leashLook, s.leash.KillBy-now)
		if !s.stopping {
			wait = min(wait, s.leash.StopAt-now)
		}
	}
	return wait
}

func (s *supervisor) kill(exited <-chan syscall.WaitStatus) syscall.WaitStatus {
	for _, p := range descendants(s.pid) {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
	select {
	case status := <-exited:
		return status
	case <-time.After(hardStop): // uninterruptible in the kernel
		return syscall.WaitStatus(syscall.SIGKILL)
	}
}

func readClock(id int32) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(id, &now); err != nil { // cannot fail for a valid clock
		panic("read the clock: " + err.Error())
	}
	return time.Duration(now.Nano())
}
