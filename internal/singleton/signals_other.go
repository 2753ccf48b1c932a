//go:build !unix

package singleton

import (
	"os"
	"syscall"
)

// Signals are the signals for Options.Signals.
var Signals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// ends reports whether a signal that no command gets ends the runner.
func ends(syscall.Signal) bool { return true }
