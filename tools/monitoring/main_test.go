package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	for path, want := range files() {
		got, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil {
			t.Error(err)
		} else if string(got) != want {
			t.Errorf("%s is not what the generator writes; run go -C tools run ./monitoring ..", path)
		}
	}
}
