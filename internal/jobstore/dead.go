package jobstore

import (
	"encoding/json"
	"time"
)

// Metadata keys of dead letters: jobs that have used up their attempts. The job
// stays in river_job until its retention is over, so what there is to say of the
// letter stands with it and goes with it; a table of our own would have to be kept in
// step with whoever deletes jobs or retries them, River's own tools among them.
const (
	// KeyDead holds a DeadMark, written by the scheduler's leader.
	KeyDead = "forge:dead"
	// KeySecondRound holds a SecondRound. It stays for good: there is no third.
	KeySecondRound = "forge:second_round"
)

// DeadMark is what is recorded of a dead letter. It is valid for as long as the
// job has run no further attempt.
type DeadMark struct {
	Attempt int `json:"attempt"`
	// Group is the Fingerprint of kind and error.
	Group string `json:"group"`
	// SecondRound is when the job is to be tried again, as MarkInstant has it;
	// empty: not by itself.
	SecondRound string `json:"second_round,omitempty"`
}

// markLayout is RFC 3339 in UTC at a fixed width: as text it sorts as in time.
const markLayout = "2006-01-02T15:04:05.000000Z"

// MarkInstant is an instant as it stands in a DeadMark.
func MarkInstant(at time.Time) string { return at.UTC().Format(markLayout) }

// ParseMarkInstant reads what MarkInstant wrote.
func ParseMarkInstant(text string) (time.Time, error) { return time.Parse(markLayout, text) }

// SecondRound tells of the round of attempts that a job got after it had died.
type SecondRound struct {
	At time.Time `json:"at"`
	// Attempt is the last one of the first round.
	Attempt int    `json:"attempt"`
	Term    int64  `json:"term"`
	NodeID  string `json:"node_id"`
}

// secondRound is nil where there was none.
func secondRound(metadata []byte) *SecondRound {
	var keys map[string]json.RawMessage
	var round SecondRound
	if json.Unmarshal(metadata, &keys) != nil || json.Unmarshal(keys[KeySecondRound], &round) != nil {
		return nil
	}
	return &round
}
