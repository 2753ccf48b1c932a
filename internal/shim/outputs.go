//go:build unix

package shim

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// outputs are where a command writes: files as they are, and for other writers
// pipes that are copied from.
type outputs struct {
	remotes []*os.File // for the command: its standard output and error
	opened  []*os.File // those of them that are closed here once it has them
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

// same says whether two writers are one, of a type that can be compared.
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
	return unix.SetNonblock(int(remote.Fd()), false) // a command expects no other
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

// copy hands on what the command writes until the last process that could write
// is gone. A writer that fails closes its pipe.
func (o *outputs) copy() {
	for i, file := range o.own {
		o.copying.Go(func() {
			_, _ = io.Copy(o.writers[i], file)
			_ = file.Close()
		})
	}
}

// wait returns when all is copied, or after a delay; 0: none.
func (o *outputs) wait(delay time.Duration) {
	if delay > 0 {
		timer := time.AfterFunc(delay, o.closeOwn)
		defer timer.Stop()
	}
	o.copying.Wait()
}
