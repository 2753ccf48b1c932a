//go:build !linux

package parts

import "context"

// Disk is a file system with little room; only Linux has them.
type Disk struct{}

// NewDisk says that there are none here.
func NewDisk(context.Context, string, int) (*Disk, error) {
	return nil, &MissingError{Part: "mount namespaces", Install: "run on Linux"}
}

// Within is never called.
func (*Disk) Within(func()) {}

// Fill is never called.
func (*Disk) Fill() error { return nil }

// Free is never called.
func (*Disk) Free() error { return nil }

// Close is never called.
func (*Disk) Close() error { return nil }
