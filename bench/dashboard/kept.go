package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// kept is what was measured. A directory for the data has it in a file, with what is in the
// database.
type kept struct {
	Filled  bool
	Jobs    int
	Crons   int
	Pages   []*page
	Lists   []*page
	Streams *cost
}

func keptFile(dir string) string { return filepath.Join(dir, "measured.json") }

// readKept returns nothing for a directory that is new, or for none.
func readKept(dir string) (k kept, err error) {
	if dir == "" {
		return k, nil
	}
	body, err := os.ReadFile(keptFile(dir)) //nolint:gosec // of the directory that the user named
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = json.Unmarshal(body, &k)
	}
	if err != nil {
		return k, fmt.Errorf("read what was measured before: %w", err)
	}
	return k, nil
}

func (k kept) write(dir string) error {
	if dir == "" {
		return nil
	}
	body, err := json.Marshal(k)
	if err == nil {
		err = os.WriteFile(keptFile(dir), body, 0o644) //nolint:gosec // not secret
	}
	if err != nil {
		return fmt.Errorf("keep what was measured: %w", err)
	}
	return nil
}

// replace puts the pages in place of those of the same name, or at the end.
func replace(before, measured []*page) []*page {
	for _, p := range measured {
		i := 0
		for i < len(before) && before[i].Path != p.Path {
			i++
		}
		if i < len(before) {
			before[i] = p
		} else {
			before = append(before, p)
		}
	}
	return before
}
