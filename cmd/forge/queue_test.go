package main

import (
	"strings"
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

// TestRatesAreLimits checks how a rate is listed among the limits.
func TestRatesAreLimits(t *testing.T) {
	t.Parallel()
	rate := jobstore.Usage{Limit: jobstore.Limit{Most: 9, Burst: 3}, Window: "1h", Started: new(int64(2))}
	var row []string
	for _, c := range limitColumns {
		row = append(row, c.show(rate))
	}
	if got := strings.Join(row, "|"); got != "|||0|2|9 in 1h, 3 at once|0" {
		t.Errorf("got %q", got)
	}
}
