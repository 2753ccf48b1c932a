//go:build unix && race

package shim

// environment returns a shim's environment. With the race detector a program lingers for
// a second when it ends, and so would every command.
func environment() []string { return []string{"GORACE=atexit_sleep_ms=50"} }
