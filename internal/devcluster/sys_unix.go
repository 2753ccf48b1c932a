//go:build unix

package devcluster

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// sessionAttributes puts a process and its children into a session of their own, as an account.
func sessionAttributes(runAs *account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Credential: runAs.credential()}
}

func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

func ownerOf(path string) (uint32, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("inspect the data directory: %w", err)
	}
	if !info.IsDir() {
		return 0, fmt.Errorf("the data directory %s is not a directory", path)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("the owner of %s is unknown on this system", path)
	}
	return stat.Uid, nil
}

func traversable(info fs.FileInfo, runAs *account) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return true
	}
	bit := fs.FileMode(0o001)
	switch {
	case stat.Uid == runAs.uid:
		bit = 0o100
	case stat.Gid == runAs.gid:
		bit = 0o010
	}
	return info.Mode().Perm()&bit != 0
}
