//go:build unix

package forge

import (
	"io/fs"
	"syscall"
)

// identity returns what distinguishes a file from another one of the same name, size and time.
func identity(info fs.FileInfo) (device, inode uint64) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Dev), stat.Ino //nolint:unconvert // int32 on some systems
	}
	return 0, 0
}
