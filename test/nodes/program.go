package nodes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// WriteProgram writes a program that another user may run too. No process starts meanwhile: it
// would share the open file until its own program runs, and a file that someone has open for
// writing cannot be run ("text file busy", https://go.dev/issue/22315).
func WriteProgram(path string, text io.Reader) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755) //nolint:gosec // a program
	if err == nil {
		_, err = io.Copy(file, text)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("write a program: %w", err)
	}
	return nil
}
