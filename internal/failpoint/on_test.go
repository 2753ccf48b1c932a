//go:build failpoints

package failpoint

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	t.Parallel()
	parsed, err := parse("a=sleep:20ms@2, b=kill,c=stop")
	if err != nil {
		t.Fatal(err)
	}
	if len(parsed) != 3 || parsed["a"].only != 2 {
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
