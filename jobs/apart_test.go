package jobs

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

//go:noinline
func deep(levels int) error {
	if levels == 0 {
		panic("deep")
	}
	return deep(levels - 1)
}

// TestApart: a worker comes to exactly one end, and a panic keeps the frames from
// where it was to where the worker began.
func TestApart(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		work   func() error
		want   ending // but for the trace
		frames int    // of the trace
	}{
		"success": {func() error { return nil }, ending{returned: true}, 0},
		"error":   {func() error { return failed }, ending{returned: true, err: failed}, 0},
		"exit":    {func() error { runtime.Goexit(); return nil }, ending{err: errExited}, 0},
		"panic":   {func() error { return deep(2) }, ending{panicked: "deep"}, 6}, // deep thrice, the worker, apart, goexit
		"deep":    {func() error { return deep(500) }, ending{panicked: "deep"}, maxFrames},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := apart(test.work)
			trace := end.trace
			if end.trace = ""; end != test.want {
				t.Errorf("got %+v, want %+v", end, test.want)
			}
			lines := strings.Split(trace, "\n")
			if got := len(lines) / 2; got != test.frames {
				t.Errorf("%d frames, want %d:\n%s", got, test.frames, trace)
			}
			if test.frames > 0 && !strings.HasSuffix(lines[0], "jobs.deep") {
				t.Errorf("the trace begins at %s", lines[0])
			}
		})
	}
}
