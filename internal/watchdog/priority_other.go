//go:build !linux

package watchdog

// raisePriority does nothing: other systems only have process priorities.
func raisePriority() {}
