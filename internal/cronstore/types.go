package cronstore

import (
	"encoding/json"
	"time"
)

// Verdict says what became of a due tick.
type Verdict string

// The verdicts of the ledger.
const (
	Fired           Verdict = "fired"
	CaughtUp        Verdict = "caught_up"
	Queued          Verdict = "queued"
	SkippedOverlap  Verdict = "skipped_overlap"
	SkippedWindow   Verdict = "skipped_window"
	SkippedLimit    Verdict = "skipped_limit"
	SkippedDST      Verdict = "skipped_dst"
	SkippedPaused   Verdict = "skipped_paused"
	SkippedExcluded Verdict = "skipped_excluded"
	Replaced        Verdict = "replaced"
	Failed          Verdict = "failed"
	Triggered       Verdict = "triggered"
	Backfilled      Verdict = "backfilled"
)

// Spec is a cron's definition as it was applied: what the scheduler's leader
// needs to fire it, whatever file its own node holds.
type Spec struct {
	Schedule    string          `json:"schedule"`
	Timezone    string          `json:"timezone"`
	Job         string          `json:"job"`
	Args        json.RawMessage `json:"args,omitempty"`
	Paused      bool            `json:"paused,omitempty"`
	Overlap     string          `json:"overlap"`
	CatchUp     string          `json:"catch_up"`
	CatchUpMax  int             `json:"catch_up_limit"`
	CatchUpSpan time.Duration   `json:"catch_up_window"`
	DSTMissing  string          `json:"dst_missing"`
	DSTRepeated string          `json:"dst_repeated"`
	// The job's own settings, resolved when the file was applied.
	Queue       string            `json:"queue"`
	Priority    int               `json:"priority"`
	MaxAttempts int               `json:"max_attempts"`
	Capability  string            `json:"capability,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
}

// Cron is a row of forge_crons.
type Cron struct {
	Name      string    `json:"name"`
	Spec      Spec      `json:"spec"`
	SpecHash  string    `json:"spec_hash"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	RemovedAt time.Time `json:"removed_at,omitzero"`
	PausedAt  time.Time `json:"paused_at,omitzero"`
	Watermark time.Time `json:"watermark"`
	NextTick  time.Time `json:"next_tick,omitzero"`
}

// Tick is a row of the ledger.
type Tick struct {
	Cron       string    `json:"cron"`
	Tick       time.Time `json:"tick"`
	Verdict    Verdict   `json:"verdict"`
	Reason     string    `json:"reason,omitempty"`
	JobID      int64     `json:"job_id,omitempty"`
	Term       int64     `json:"term"`
	NodeID     string    `json:"node_id"`
	RecordedAt time.Time `json:"recorded_at"`
	LatenessMS float64   `json:"lateness_ms"`
	LastTick   time.Time `json:"last_tick,omitzero"`
	Count      int64     `json:"tick_count"`
}
