package jobstore

import (
	"encoding/json"
	"slices"
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
	Outcome      string    `json:"outcome"` // one of the outcomes above
	ExitCode     *int      `json:"exit_code,omitempty"`
	StatusCode   *int      `json:"status_code,omitempty"`
	Error        string    `json:"error,omitempty"`
	OutputBytes  int64     `json:"output_bytes"`
	DroppedBytes int64     `json:"dropped_bytes,omitempty"`
	DroppedLines int64     `json:"dropped_lines,omitempty"`
}

// Plain says that the job's row tells all there is to tell of the attempt: who ran
// it, from when to when, and that it succeeded. Nothing is recorded of it then.
func (a Attempt) Plain() bool {
	return a.Outcome == OutcomeCompleted && a.ExitCode == nil && a.StatusCode == nil && a.OutputBytes == 0 && a.DroppedBytes == 0
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
	Args        json.RawMessage `json:"args,omitempty"`
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
	// What follows is filled by Get, not by List. Snoozes is how often the job asked to
	// be run later. SecondRound is nil for a job that got none.
	Snoozes     int          `json:"snoozes,omitempty"`
	SecondRound *SecondRound `json:"second_round,omitempty"`
	Attempts    []Attempt    `json:"attempts,omitempty"`
}

// withPlain adds the attempt that completed the job where nothing was recorded of
// it. It began with its claim, by the database's clock, and ended by its node's.
func (j Job) withPlain() []Attempt {
	before, recorded := j.before()
	if j.State != stateCompleted || recorded || j.AttemptedAt.IsZero() {
		return j.Attempts
	}
	took := max(0, j.FinalizedAt.Sub(j.AttemptedAt))
	return append(before, Attempt{
		Attempt: j.Attempt, NodeID: j.NodeID, StartedAt: j.AttemptedAt,
		DurationMS: float64(took.Microseconds()) / 1000, Outcome: OutcomeCompleted,
	})
}

// Runs are the attempts with the one that goes on, which nobody has recorded yet:
// it has no outcome.
func (j Job) Runs() []Attempt {
	before, recorded := j.before()
	if j.State != stateRunning || recorded {
		return j.Attempts
	}
	return append(before, Attempt{Attempt: j.Attempt, NodeID: j.NodeID, StartedAt: j.AttemptedAt})
}

// before are the attempts before the one that runs or has completed the job, and
// whether that one is recorded. What was recorded of an earlier run under its number,
// which did not burn it, tells nothing of this one.
func (j Job) before() (before []Attempt, recorded bool) {
	before = slices.Clone(j.Attempts)
	at := slices.IndexFunc(before, func(a Attempt) bool { return a.Attempt == j.Attempt })
	if at < 0 {
		return before, false
	}
	if outcome := before[at].Outcome; outcome != OutcomeInterrupted && outcome != OutcomeSnoozed {
		return before, true
	}
	return slices.Delete(before, at, at+1), false
}

// LogChunk is a row of forge_job_logs.
type LogChunk struct {
	Attempt int       `json:"attempt"`
	Seq     int       `json:"seq"`
	At      time.Time `json:"at"`
	Stream  string    `json:"stream"`
	Chunk   string    `json:"chunk"`
}

// RunKey names the output of one attempt.
type RunKey struct {
	JobID   int64
	Attempt int
}

// LogRow is a chunk that is to be added to the output of a job's attempt.
type LogRow struct {
	JobID int64
	LogChunk
	// KeepUntil is when it may be deleted; zero: when the retention of all output
	// says.
	KeepUntil time.Time
}

// NewJob is a job to be inserted. Zero values mean the defaults: queue
// "default", priority 1, 25 attempts, due now.
type NewJob struct {
	// ID is one that was taken from River's sequence; 0 takes the next.
	ID          int64
	Kind        string
	Args        json.RawMessage
	Queue       string
	Priority    int
	MaxAttempts int
	ScheduledAt time.Time
	// ReadyAt is when the job counts as available, where the transaction that inserts
	// it does not commit before; zero: when that has begun.
	ReadyAt time.Time
	// Unique lets no other job of the kind with the same key be added until this
	// one is cancelled, discarded or removed; empty: it may have any number of twins.
	Unique string
	// UniqueBy lets the job not be added while another of the kind is the same in
	// these respects; Unique goes before it.
	UniqueBy UniqueBy
	// Metadata holds forge's keys, such as KeyCron.
	Metadata map[string]any
}

// UniqueBy is in what a job must differ from those that are there; with no field
// set it may be like any.
type UniqueBy struct {
	Args, Queue bool
	// Period is how long the stretches of time are of which each has one job.
	Period time.Duration
	// States are those of jobs that count; empty: all but cancelled and discarded.
	States []string
}

// Enqueued is what became of a job that was to be added.
type Enqueued struct {
	ID   int64  `json:"id"`
	Kind string `json:"kind"`
	// Existing says that nothing was added: ID is of a job that is the same.
	Existing bool   `json:"existing,omitempty"`
	State    string `json:"state"`
	Queue    string `json:"queue"`
}
