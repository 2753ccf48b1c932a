package jobstore

import (
	"encoding/json"
	"time"
)

// Metadata keys of dead letters: jobs that have used up their attempts. The job
// stays in river_job until its retention ends, so the data about the dead letter is
// stored in its row and is deleted with it. A separate table would have to be
// synchronized with everything that deletes or retries jobs, including River's
// tools.
const (
	// KeyDead holds a DeadMark, written by the scheduler's leader.
	KeyDead = "forge:dead"
	// KeySecondRound holds a SecondRound. It is never removed: there is no third
	// round.
	KeySecondRound = "forge:second_round"
)

// DeadMark is the record of a dead letter. It is valid until the job runs another
// attempt.
type DeadMark struct {
	Attempt int `json:"attempt"`
	// Group is the Fingerprint of kind and error.
	Group string `json:"group"`
	// SecondRound is when the job is retried automatically, as MarkInstant formats
	// it; empty: never.
	SecondRound string `json:"second_round,omitempty"`
}

// markLayout is RFC 3339 in UTC with a fixed width: its text order is its time
// order.
const markLayout = "2006-01-02T15:04:05.000000Z"

// MarkInstant formats an instant for a DeadMark.
func MarkInstant(at time.Time) string { return at.UTC().Format(markLayout) }

// ParseMarkInstant parses the format of MarkInstant.
func ParseMarkInstant(text string) (time.Time, error) { return time.Parse(markLayout, text) }

// SecondRound describes the second round of attempts of a dead letter.
type SecondRound struct {
	At time.Time `json:"at"`
	// Attempt is the last attempt of the first round.
	Attempt int    `json:"attempt"`
	Term    int64  `json:"term"`
	NodeID  string `json:"node_id"`
}

// secondRound returns nil if there was none.
func secondRound(metadata []byte) *SecondRound {
	var keys map[string]json.RawMessage
	var round SecondRound
	if json.Unmarshal(metadata, &keys) != nil || json.Unmarshal(keys[KeySecondRound], &round) != nil {
		return nil
	}
	return &round
}
