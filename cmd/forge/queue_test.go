package main

import (
	"testing"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// TestCountsThatStoppedHaveAPlus checks that the columns of queues and limits mark these counts.
func TestCountsThatStoppedHaveAPlus(t *testing.T) {
	t.Parallel()
	queue := jobstore.Queue{Available: 10_000, MoreAvailable: true, Scheduled: 10_000, Retryable: 10_000, MoreRetryable: true}
	for title, want := range map[string]string{"available": "10000+", "scheduled": "10000", "retryable": "10000+"} {
		for _, c := range queueColumns {
			if c.title == title && c.show(queue) != want {
				t.Errorf("%s is %q, want %q", title, c.show(queue), want)
			}
		}
	}
	usage := limitColumns[len(limitColumns)-1].show(jobstore.Usage{Available: 10_000, MoreAvailable: true})
	if usage != "10000+" {
		t.Errorf("available under a limit is %q", usage)
	}
}
