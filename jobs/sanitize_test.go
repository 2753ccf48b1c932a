package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// unprintableError is an error whose Error method panics on a nil pointer.
type unprintableError struct{ text string }

func (e *unprintableError) Error() string { return e.text }

// wrappingError has a text even as a nil pointer, and an Unwrap method that panics on one.
type wrappingError struct{ cause error }

func (e *wrappingError) Error() string { return "wrapped" }

func (e *wrappingError) Unwrap() error { return e.cause }

// Any error or panic of a worker is recorded as the result of its own attempt, and
// affects no other attempt.
func TestWorkerErrorsAreSanitized(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		for name, test := range map[string]struct {
			work func() error
			want string
		}{
			"NUL in an error":           {func() error { return errors.New("a\x00b") }, "a\uFFFDb"},
			"invalid UTF-8 in an error": {func() error { return errors.New("a\xffb") }, "a\uFFFDb"},
			"NUL in a panic":            {func() error { panic("a\x00b") }, "a\uFFFDb"},
			"an error of 10 MB": {
				func() error { return errors.New(strings.Repeat("x", 10<<20)) }, strings.Repeat("x", 8<<10) + "... (10477568 bytes more)",
			},
			"a panic of 10 MB": {
				func() error { panic(strings.Repeat("é", 5<<20)) }, strings.Repeat("é", 4<<10) + "... (10477568 bytes more)",
			},
			"an error without a text": {
				func() error { var none *unprintableError; return none },
				"an error of type *jobs_test.unprintableError that cannot be read: runtime error: invalid memory address or nil pointer dereference",
			},
			"an error without a cause": {
				func() error { var none *wrappingError; return none },
				"an error of type *jobs_test.wrappingError that cannot be read: runtime error: invalid memory address or nil pointer dereference",
			},
			"a snooze without a time": {
				func() error { var none *rivertype.JobSnoozeError; return none },
				"an error of type *rivertype.JobSnoozeError that cannot be read: runtime error: invalid memory address or nil pointer dereference",
			},
			"a wrapped snooze without a time": {
				func() error { var none *rivertype.JobSnoozeError; return fmt.Errorf("later: %w", none) },
				"an error of type *fmt.wrapError that cannot be read: runtime error: invalid memory address or nil pointer dereference",
			},
			"a cancellation without a reason": {
				func() error { var none *rivertype.JobCancelError; return none },
				"an error of type *rivertype.JobCancelError that cannot be read: runtime error: invalid memory address or nil pointer dereference",
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				n := startNode(t, nil, add.worker(func(context.Context) error { return test.work() }))
				job := n.finish(t, n.work(t, jobstore.NewJob{Kind: "greet", MaxAttempts: 1}), "discarded")
				if job.LastError != test.want {
					t.Errorf("the error is %q (%d bytes), want %q", cut(job.LastError), len(job.LastError), cut(test.want))
				}
				if len(job.Attempts) != 1 || job.Attempts[0].Outcome != jobstore.OutcomeFailed {
					t.Errorf("got attempts %d", len(job.Attempts))
				}
			})
		}
	})
}

func cut(text string) string { return text[:min(len(text), 200)] }
