package devcluster

import (
	"errors"
	"io/fs"
	"syscall"
)

// On Windows the package compiles and starts nothing.

func nodeAttributes() *syscall.SysProcAttr { return nil }

func sessionAttributes(*account) *syscall.SysProcAttr { return nil }

func ownerOf(string) (uint32, error) {
	return 0, errors.New("PostgreSQL is not started on Windows")
}

func traversable(fs.FileInfo, *account) bool { return true }
