//go:build !linux

package pgembed

import (
	"os"
	"syscall"
)

func ownProgram() (string, error) { return os.Executable() }

func endWithSupervisor() *syscall.SysProcAttr { return nil }
