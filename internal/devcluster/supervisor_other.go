//go:build !linux

package devcluster

import (
	"os"
	"syscall"
)

func ownProgram() (string, error) { return os.Executable() }

func endWithSupervisor() *syscall.SysProcAttr { return nil }
