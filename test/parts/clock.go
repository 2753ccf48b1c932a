package parts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/test/nodes"
)

// fakeTime is where distributions keep libfaketime.
const fakeTime = "/usr/lib/*/faketime/libfaketime.so.1"

// Clock is a server's clock, to be set. It is the wall's: what counts the time that
// passes goes on.
type Clock struct{ file string }

// NewClock makes programs out of those of bin, in dir, that run by a clock of their
// own.
func NewClock(bin, dir string) (*Clock, error) {
	found, err := filepath.Glob(fakeTime)
	if err != nil || len(found) == 0 {
		return nil, &MissingError{Part: "libfaketime", Install: "apt-get install faketime"}
	}
	c := &Clock{file: filepath.Join(dir, "clock")}
	if err := c.Set(0); err != nil {
		return nil, err
	}
	programs, err := os.ReadDir(bin)
	if err != nil {
		return nil, fmt.Errorf("look for the server's programs: %w", err)
	}
	for _, program := range programs {
		if program.Name() == "postgres" {
			continue
		}
		if err := os.Symlink(filepath.Join(bin, program.Name()), filepath.Join(dir, program.Name())); err != nil {
			return nil, fmt.Errorf("take over the server's programs: %w", err)
		}
	}
	script := fmt.Sprintf(`#!/bin/sh
export LD_PRELOAD=%s FAKETIME_TIMESTAMP_FILE=%s FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1
exec %s "$@"
`, found[0], c.file, filepath.Join(bin, "postgres"))
	if err := nodes.WriteProgram(filepath.Join(dir, "postgres"), strings.NewReader(script)); err != nil {
		return nil, fmt.Errorf("give the server a clock: %w", err)
	}
	return c, nil
}

// Set puts the clock so far ahead of the machine's.
func (c *Clock) Set(ahead time.Duration) error {
	text := fmt.Sprintf("%+ds", int(ahead.Seconds()))
	if err := os.WriteFile(c.file+".new", []byte(text), 0o644); err != nil { //nolint:gosec // the server's account reads it
		return fmt.Errorf("set the clock: %w", err)
	}
	if err := os.Rename(c.file+".new", c.file); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}
