//go:build unix

package singleton

import (
	"os"
	"syscall"
)

// Signals are the signals for Options.Signals.
var Signals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// ends reports whether a signal that no command gets ends the runner.
func ends(sig syscall.Signal) bool { return sig != syscall.SIGUSR1 && sig != syscall.SIGUSR2 }
