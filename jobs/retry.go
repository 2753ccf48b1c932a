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
	// backoffJitter is the share by which a delay varies either way, so that
	// jobs that failed together do not come back together.
	backoffJitter = 0.1
)

// attemptOfRound counts from the beginning of the second round where a job is in
// it: its first failure there is as new as the very first was.
func attemptOfRound(job *rivertype.JobRow) int {
	var metadata struct {
		SecondRound jobstore.SecondRound `json:"forge:second_round"`
	}
	_ = json.Unmarshal(job.Metadata, &metadata) // anyone may have written it; zero then
	if before := metadata.SecondRound.Attempt; before > 0 && before < job.Attempt {
		return job.Attempt - before
	}
	return job.Attempt
}

// backoff is the wait after a failed attempt: it doubles from one to the next,
// up to the retry's most.
func backoff(retry config.Retry, attempt int) time.Duration {
	wait, most := retry.Backoff.Std(), retry.MaxBackoff.Std()
	if wait <= 0 {
		wait = defaultBackoff
	}
	if most <= 0 {
		most = max(defaultMaxBackoff, wait)
	}
	for range attempt - 1 {
		if wait >= most {
			break
		}
		wait *= 2
	}
	jitter := 1 + backoffJitter*(2*rand.Float64()-1)
	return time.Duration(float64(min(wait, most)) * jitter)
}
