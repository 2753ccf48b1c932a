//go:build unix

package shim

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// outputs are the destinations of a command's output: files are passed on directly, other
// writers get a pipe that is copied from.
type outputs struct {
	remotes []*os.File // for the command: its standard output and error
	opened  []*os.File // the remotes to close here once the command has them
	own     []*os.File // the other ends
	writers []io.Writer
	copying sync.WaitGroup
}

func openOutputs(stdout, stderr io.Writer) (*outputs, error) {
	o := &outputs{}
	for i, w := range []io.Writer{stdout, stderr} {
		if i == 1 && same(stdout, stderr) {
			o.remotes = append(o.remotes, o.remotes[0])
			break
		}
		if err := o.open(w); err != nil {
			o.closeRemotes()
			o.closeOwn()
			return nil, err
		}
	}
	return o, nil
}

// same reports whether two writers are equal, if their type can be compared.
func same(a, b io.Writer) bool {
	defer func() { _ = recover() }()
	return a == b
}

func (o *outputs) open(w io.Writer) error {
	if file, ok := w.(*os.File); ok {
		o.remotes = append(o.remotes, file)
		return nil
	}
	own, remote, err := os.Pipe()
	if err != nil {
		return err
	}
	o.own, o.writers = append(o.own, own), append(o.writers, w)
	o.remotes, o.opened = append(o.remotes, remote), append(o.opened, remote)
	return unix.SetNonblock(int(remote.Fd()), false) // commands expect blocking files
}

func (o *outputs) closeRemotes() {
	for _, file := range o.opened {
		_ = file.Close()
	}
}

func (o *outputs) closeOwn() {
	for _, file := range o.own {
		_ = file.Close()
	}
}

// copy passes on the command's output until the last process that could write is gone. A
// writer that fails closes its pipe.
func (o *outputs) copy() {
	for i, file := range o.own {
		o.copying.Go(func() {
			_, _ = io.Copy(o.writers[i], file)
			_ = file.Close()
		})
	}
}

// wait returns when all output is copied, or after delay; 0 means no limit.
func (o *outputs) wait(delay time.Duration) {
	if delay > 0 {
		timer := time.AfterFunc(delay, o.closeOwn)
		defer timer.Stop()
	}
	o.copying.Wait()
}
