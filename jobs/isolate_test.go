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

// A worker has exactly one result. The trace of a panic contains the frames from the
// panic to the start of the worker.
func TestIsolate(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		work   func() error
		want   workerResult // without the trace
		frames int          // number of frames in the trace
	}{
		"success": {func() error { return nil }, workerResult{returned: true}, 0},
		"error":   {func() error { return failed }, workerResult{returned: true, err: failed}, 0},
		"exit":    {func() error { runtime.Goexit(); return nil }, workerResult{err: errExited}, 0},
		"panic":   {func() error { return deep(2) }, workerResult{panicked: "deep"}, 6}, // three times deep, the worker, isolate, goexit
		"deep":    {func() error { return deep(500) }, workerResult{panicked: "deep"}, maxFrames},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := isolate(test.work)
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
