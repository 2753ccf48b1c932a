//go:build !linux

package rig

import (
	"errors"
	"time"
)

var errNoUsage = errors.New("the use of a process can only be read on Linux")

// CPU is how much processor time a process has used.
func CPU(int) (time.Duration, error) { return 0, errNoUsage }

// FamilyCPU is the same with all of its children.
func FamilyCPU(int) (time.Duration, error) { return 0, errNoUsage }

// Memory is how much of a process is in memory, in bytes.
func Memory(int) (int64, error) { return 0, errNoUsage }
