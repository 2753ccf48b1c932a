package jobs

import (
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	defaultBackoff    = 5 * time.Second
	defaultMaxBackoff = 10 * time.Minute
	// backoffJitter is the fraction by which a delay varies in both directions, so that
	// jobs that failed together are not retried together.
	backoffJitter = 0.1
)

// attemptOfRound returns the number of the attempt, counted from the start of the second
// round if the job is in it.
func attemptOfRound(job *rivertype.JobRow) int {
	var metadata struct {
		SecondRound jobstore.SecondRound `json:"forge:second_round"`
	}
	_ = json.Unmarshal(job.Metadata, &metadata) // the metadata may come from anyone; zero on error
	if before := metadata.SecondRound.Attempt; before > 0 && before < job.Attempt {
		return job.Attempt - before
	}
	return job.Attempt
}

// backoff returns the delay after a failed attempt. It doubles with each attempt up to
// MaxBackoff.
func backoff(retry config.Retry, attempt int) time.Duration {
	wait, maxBackoff := retry.Backoff.Std(), retry.MaxBackoff.Std()
	if wait <= 0 {
		wait = defaultBackoff
	}
	if maxBackoff <= 0 {
		maxBackoff = max(defaultMaxBackoff, wait)
	}
	for range attempt - 1 {
		if wait >= maxBackoff {
			break
		}
		wait *= 2
	}
	jitter := 1 + backoffJitter*(2*rand.Float64()-1)
	return time.Duration(float64(min(wait, maxBackoff)) * jitter)
}
