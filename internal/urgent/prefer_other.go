//go:build !linux

package urgent

// prefer does nothing: elsewhere only whole processes have a priority.
func prefer() {}
