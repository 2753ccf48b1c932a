package config

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// SecondRound is what a job gets after it has used up its attempts.
type SecondRound struct {
	// After the last attempt.
	After time.Duration
	// Attempts is how many there are in it.
	Attempts int
}

// SecondRounds returns the second rounds of the jobs that have one, by the job's
// name, from the cluster's sections as ClusterSections returns them or as the
// database gives them back.
func SecondRounds(sections []byte) (map[string]SecondRound, error) {
	jobs, err := Section(sections, "jobs")
	if err != nil {
		return nil, err
	}
	rounds := map[string]SecondRound{}
	for name, job := range jobs {
		table, _ := job.(map[string]any)
		retry, _ := table["retry"].(map[string]any)
		text, ok := retry["second_round"].(string)
		if !ok {
			continue
		}
		after, err := ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("second round of %s: %w", name, err)
		}
		rounds[name] = SecondRound{After: after.Std(), Attempts: attemptsOf(retry)}
	}
	return rounds, nil
}

func attemptsOf(retry map[string]any) int {
	written, _ := retry["max_attempts"].(json.Number)
	if n, err := strconv.Atoi(written.String()); err == nil && n > 0 {
		return n
	}
	return defaultJob().Retry.MaxAttempts
}
