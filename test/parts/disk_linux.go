package parts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// ballast is the file that takes what room is left.
const ballast = "ballast"

// Disk is a file system with little room that exists for the processes which Within
// starts, and for nobody else: it lies in a mount namespace, and in memory.
type Disk struct {
	dir   string
	calls chan func()
	ended chan struct{}
}

// NewDisk makes a disk of so many megabytes that is seen at dir, which must be there.
// It goes with Close and the last process on it, and needs root.
func NewDisk(_ context.Context, dir string, megabytes int) (*Disk, error) {
	if os.Geteuid() != 0 {
		return nil, &MissingError{Part: "the right to mount", Install: "run as root"}
	}
	d := &Disk{dir: dir, calls: make(chan func()), ended: make(chan struct{})}
	mounted := make(chan error)
	go d.hold(mounted, megabytes)
	if err := <-mounted; err != nil {
		close(d.calls)
		return nil, &MissingError{Part: "the right to mount", Install: err.Error()}
	}
	return d, nil
}

// hold keeps a thread in the namespace and lets it do what it is told. The thread ends
// with it, as it could not do anything else afterwards.
func (d *Disk) hold(mounted chan<- error, megabytes int) {
	defer close(d.ended)
	runtime.LockOSThread()
	mounted <- d.mount(megabytes)
	for call := range d.calls {
		call()
	}
}

func (d *Disk) mount(megabytes int) error {
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to the namespace: %w", err)
	}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0755", megabytes)); err != nil {
		return fmt.Errorf("mount a disk: %w", err)
	}
	return nil
}

// Within calls a function on a thread that sees the disk, as the processes do that it
// starts.
func (d *Disk) Within(call func()) {
	done := make(chan struct{})
	d.calls <- func() { defer close(done); call() }
	<-done
}

// Fill leaves no room on the disk, and takes what has become free since the last time.
func (d *Disk) Fill() (err error) {
	d.Within(func() { err = d.fill() })
	return err
}

func (d *Disk) fill() error {
	file, err := os.OpenFile(filepath.Join(d.dir, ballast), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	page := make([]byte, 4096)
	for err == nil {
		_, err = file.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(fmt.Errorf("fill the disk: %w", err), file.Close())
	}
	if err := file.Close(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("fill the disk: %w", err)
	}
	return nil
}

// Free gives the room back that Fill has taken.
func (d *Disk) Free() (err error) {
	d.Within(func() { err = os.Remove(filepath.Join(d.dir, ballast)) })
	return err
}

// Close lets the disk go; its processes must have ended before.
func (d *Disk) Close() error {
	close(d.calls)
	<-d.ended
	return nil
}
