package jobstore

import (
	"encoding/json"
	"time"
)

// Metadata keys under which forge keeps its own facts in river_job.metadata.
const (
	KeyCron       = "forge:cron"
	KeyTick       = "forge:tick" // RFC 3339, UTC
	KeyTerm       = "forge:term"
	KeyCapability = "forge:capability"
	KeyTags       = "forge:tags"
	// KeyAttempt is followed by the attempt's number; its value is an Attempt.
	KeyAttempt = "forge:attempt:"
)

// Outcomes of an attempt. OutcomeInterrupted and OutcomeSnoozed did not burn it:
// the next run has the same number.
const (
	OutcomeCompleted   = "completed"
	OutcomeFailed      = "failed"
	OutcomeCancelled   = "cancelled"
	OutcomeTimedOut    = "timed_out"
	OutcomeInterrupted = "interrupted"
	OutcomeSnoozed     = "snoozed"
	// OutcomeLost is written for an attempt whose node is gone.
	OutcomeLost = "lost"
)

// Streams of an attempt's output.
const (
	StreamStdout = "stdout"
	StreamStderr = "stderr"
	// StreamSystem holds forge's own remarks on the attempt.
	StreamSystem = "system"
)

// Attempt is what one run of a job came to. ExitCode and StatusCode are nil
// where the kind has none.
type Attempt struct {
	Attempt      int       `json:"attempt"`
	NodeID       string    `json:"node_id"`
	StartedAt    time.Time `json:"started_at"`
	DurationMS   float64   `json:"duration_ms"`
	Outcome      string    `json:"outcome"` // one of the outcomes below, or lost
	ExitCode     *int      `json:"exit_code,omitempty"`
	StatusCode   *int      `json:"status_code,omitempty"`
	Error        string    `json:"error,omitempty"`
	OutputBytes  int64     `json:"output_bytes"`
	DroppedBytes int64     `json:"dropped_bytes,omitempty"`
}

// Job is a river_job as forge shows it.
type Job struct {
	ID          int64           `json:"id"`
	Kind        string          `json:"kind"`
	State       string          `json:"state"`
	Queue       string          `json:"queue"`
	Priority    int             `json:"priority"`
	Attempt     int             `json:"attempt"`
	MaxAttempts int             `json:"max_attempts"`
	Args        json.RawMessage `json:"args"`
	Cron        string          `json:"cron,omitempty"`
	Tick        time.Time       `json:"tick,omitzero"`
	// NodeID is the node of the newest attempt.
	NodeID      string    `json:"node_id,omitempty"`
	CreatedAt   time.Time `json:"created_at"`
	ScheduledAt time.Time `json:"scheduled_at"`
	AttemptedAt time.Time `json:"attempted_at,omitzero"`
	FinalizedAt time.Time `json:"finalized_at,omitzero"`
	// LastError is the message of the newest failed attempt.
	LastError string `json:"last_error,omitempty"`
	// Attempts is filled by Get, not by List.
	Attempts []Attempt `json:"attempts,omitempty"`
}

// LogChunk is a row of forge_job_logs.
type LogChunk struct {
	Attempt int       `json:"attempt"`
	Seq     int       `json:"seq"`
	At      time.Time `json:"at"`
	Stream  string    `json:"stream"`
	Chunk   string    `json:"chunk"`
}

// NewJob is a job to be inserted. Zero values mean the defaults: queue
// "default", priority 1, 25 attempts, due now.
type NewJob struct {
	Kind        string
	Args        json.RawMessage
	Queue       string
	Priority    int
	MaxAttempts int
	ScheduledAt time.Time
	// Metadata holds forge's keys, such as KeyCron.
	Metadata map[string]any
}
