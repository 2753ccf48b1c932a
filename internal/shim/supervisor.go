//go:build unix

package shim

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// leashLook is the longest time between two looks at the clock while a command
// is on a leash: timers stand still while the machine is suspended.
const leashLook = 500 * time.Millisecond

// Leash is until when a command may live, by a clock that all processes of the
// machine share.
type Leash struct {
	// StopAt is when it gets SIGTERM, KillBy when SIGKILL, whatever the grace.
	StopAt time.Duration `json:"stop_at"`
	KillBy time.Duration `json:"kill_by"`
}

// NewLeash ends at two instants of this process's own clock.
func NewLeash(stopAt, killBy time.Time) Leash {
	now := clock()
	return Leash{StopAt: now + time.Until(stopAt), KillBy: now + time.Until(killBy)}
}

// supervisor waits for a command's end or brings it about.
type supervisor struct {
	pid   int
	grace time.Duration
	leash *Leash

	stopping bool
	killAt   time.Duration // by the grace
	expired  bool
	// quit says that this shim takes no other command: somebody told it to end.
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

// stop asks politely.
func (s *supervisor) stop(with syscall.Signal) {
	if s.stopping {
		return
	}
	s.stopping, s.killAt = true, clock()+s.grace
	for _, p := range descendants(s.pid) {
		_ = syscall.Kill(p, with)
	}
}

// judge stops a command whose leash has run out, and says whether it must be
// killed.
func (s *supervisor) judge(now time.Duration) bool {
	if s.leash != nil && now >= s.leash.StopAt && !s.stopping {
		s.expired = true
		s.stop(syscall.SIGTERM)
	}
	return s.stopping && now >= s.killAt || s.leash != nil && now >= s.leash.KillBy
}

// next is how long nothing has to be done.
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
	case <-time.After(hardStop): // in the kernel's hands: uninterruptible
		return syscall.WaitStatus(syscall.SIGKILL)
	}
}

func readClock(id int32) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(id, &now); err != nil { // a constant that the system knows
		panic("read the clock: " + err.Error())
	}
	return time.Duration(now.Nano())
}
