package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Unique is in what jobs of a kind must differ from those that are there to be
// added; nothing: they may be alike.
type Unique struct {
	ByArgs bool `toml:"by_args,omitempty"`
	// ByPeriod is how long the stretches are, from midnight UTC on, of which each
	// has one job.
	ByPeriod Duration `toml:"by_period,omitzero" min:"1s" max:"366d"`
	ByQueue  bool     `toml:"by_queue,omitempty"`
	// ByState are the states of the jobs that count.
	// Default: all but cancelled and discarded.
	ByState []string `toml:"by_state,omitempty" oneof:"available|cancelled|completed|discarded|pending|retryable|running|scheduled"`
}

// MustCount are the states that always count: a job moves between them without
// asking whether another is there.
var MustCount = []string{"available", "pending", "running", "scheduled"}

// MissingStates are those of MustCount that states lack.
func MissingStates(states []string) []string {
	var missing []string
	for _, state := range MustCount {
		if !slices.Contains(states, state) {
			missing = append(missing, state)
		}
	}
	return missing
}

func (l *loader) checkUnique(path string, unique Unique) {
	states := path + ".by_state"
	known := l.ok(states) && !slices.Contains(unique.ByState, "") // a state that there is not is left empty
	if missing := MissingStates(unique.ByState); len(unique.ByState) > 0 && known && len(missing) > 0 {
		l.wrong(states, "without states that always count", strings.Join(unique.ByState, ", "), strings.Join(quotedAll(missing), ", ")+" too")
	}
}

// UniqueJobs returns in what the jobs that say so are unique, by the job's name,
// from the cluster's sections as ClusterSections returns them or as the database
// gives them back.
func UniqueJobs(sections []byte) (map[string]Unique, error) {
	jobs, err := Section(sections, "jobs")
	if err != nil {
		return nil, err
	}
	found := map[string]Unique{}
	for name, job := range jobs {
		table, _ := job.(map[string]any)
		if table["unique"] == nil {
			continue
		}
		body, err := json.Marshal(table["unique"])
		if err != nil {
			return nil, fmt.Errorf("read what is unique of %s: %w", name, err)
		}
		var unique struct {
			Args   bool     `json:"by_args"`
			Period Duration `json:"by_period"`
			Queue  bool     `json:"by_queue"`
			States []string `json:"by_state"`
		}
		if err := json.Unmarshal(body, &unique); err != nil {
			return nil, fmt.Errorf("read what is unique of %s: %w", name, err)
		}
		found[name] = Unique{ByArgs: unique.Args, ByPeriod: unique.Period, ByQueue: unique.Queue, ByState: unique.States}
	}
	return found, nil
}
