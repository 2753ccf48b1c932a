//go:build failpoints

package failpoint

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	t.Parallel()
	parsed, err := parse("a=sleep:20ms@2, b=kill,c=stop,d=term")
	if err != nil {
		t.Fatal(err)
	}
	if len(parsed) != 4 || parsed["a"].only != 2 {
		t.Fatalf("parsed %v", parsed)
	}
	start := time.Now()
	parsed["a"].do()
	if took := time.Since(start); took < 20*time.Millisecond {
		t.Errorf("slept %s, want 20ms", took)
	}
	for _, bad := range []string{"a", "a=explode", "a=sleep:soon", "a=kill@0"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("parse(%q) succeeded", bad)
		}
	}
}

func TestFileStrikesOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	t.Setenv(Env, "@"+file)
	took := func() time.Duration {
		start := time.Now()
		Hit("a")
		return time.Since(start)
	}
	took() // there is no file yet
	for range 2 {
		if err := os.WriteFile(file, []byte("a=sleep:100ms"), 0o600); err != nil {
			t.Fatal(err)
		}
		Hit("b")
		if slept := took(); slept < 100*time.Millisecond {
			t.Errorf("slept %s, want 100ms", slept)
		}
		if _, err := os.Stat(file); err == nil {
			t.Error("the file is still there")
		}
	}
}
