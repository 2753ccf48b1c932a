package watchdog

import "runtime"

// niceness is the nice value of a high-priority thread, for short work that must
// not wait.
const niceness = -10

// RunHighPriority runs work in a goroutine on its own thread and returns its error.
// The thread ends with the goroutine, so that no other work gets its priority.
func RunHighPriority(work func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		raisePriority()
		done <- work()
	}()
	return <-done
}
