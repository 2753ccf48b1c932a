package jobstore

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
)

// Metadata keys under which forge stores its data in river_job.metadata.
const (
	KeyCron       = "forge:cron"
	KeyTick       = "forge:tick" // RFC 3339, UTC
	KeyTerm       = "forge:term"
	KeyCapability = "forge:capability"
	KeyTags       = "forge:tags"
	KeyWeight     = "forge:weight"   // the units of the job in rates, a number
	KeyProgress   = "forge:progress" // a Progress
	// KeyAttempt is followed by the attempt's number; the value is an Attempt.
	KeyAttempt = "forge:attempt:"
)

// Outcomes of an attempt. OutcomeInterrupted and OutcomeSnoozed do not use up the
// attempt: the next run has the same number.
const (
	OutcomeCompleted   = "completed"
	OutcomeFailed      = "failed"
	OutcomeCancelled   = "cancelled"
	OutcomeTimedOut    = "timed_out"
	OutcomeInterrupted = "interrupted"
	OutcomeSnoozed     = "snoozed"
	// OutcomeLost is the outcome of an attempt whose node is dead.
	OutcomeLost = "lost"
)

// Streams of an attempt's output.
const (
	StreamStdout = "stdout"
	StreamStderr = "stderr"
	// StreamSystem holds forge's remarks on the attempt.
	StreamSystem = "system"
)

// Attempt is the result of one run of a job. ExitCode and StatusCode are nil for
// kinds that have none.
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

// Plain reports whether the job's row fully describes the attempt: its node, its
// times, and that it succeeded. Such an attempt is not recorded.
func (a Attempt) Plain() bool {
	return a.Outcome == OutcomeCompleted && a.ExitCode == nil && a.StatusCode == nil && a.OutputBytes == 0 && a.DroppedBytes == 0
}

// Progress is what the work of an attempt last reported of its progress.
type Progress struct {
	Attempt int `json:"attempt"`
	// Percent is from 0 to 100; nil if only a message was reported.
	Percent *float64  `json:"percent,omitempty"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"` // by the clock of its node
}

// Text returns the progress on one line.
func (p *Progress) Text() string {
	switch {
	case p == nil:
		return ""
	case p.Percent == nil:
		return p.Message
	}
	percent := strconv.FormatFloat(*p.Percent, 'f', -1, 64) + "%"
	if p.Message == "" {
		return percent
	}
	return percent + ": " + p.Message
}

// Job is a row of river_job.
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
	// The following fields are set by Get, not by List. Snoozes is how often the
	// job was snoozed. SecondRound is nil for a job without one.
	Snoozes     int          `json:"snoozes,omitempty"`
	SecondRound *SecondRound `json:"second_round,omitempty"`
	// Duplicates is nil for a job without a rule for them.
	Duplicates *JobDuplicates `json:"duplicates,omitempty"`
	// Progress and Result are what the work reported last.
	Progress *Progress       `json:"progress,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Attempts []Attempt       `json:"attempts,omitempty"`
}

// withPlain adds the attempt that completed the job if it was not recorded. It
// began with its claim, by the database's clock, and ended by the clock of its
// node.
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

// Runs returns the attempts including the running one, which is not recorded yet
// and has no outcome.
func (j Job) Runs() []Attempt {
	before, recorded := j.before()
	if j.State != stateRunning || recorded {
		return j.Attempts
	}
	return append(before, Attempt{Attempt: j.Attempt, NodeID: j.NodeID, StartedAt: j.AttemptedAt})
}

// before returns the attempts before the one that runs or has completed the job,
// and whether that one is recorded. The record of an earlier run with its number,
// which did not use it up, is ignored.
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

// RunKey identifies the output of one attempt.
type RunKey struct {
	JobID   int64
	Attempt int
}

// LogRow is a chunk to be added to the output of a job's attempt.
type LogRow struct {
	JobID int64
	LogChunk
	// KeepUntil is when the chunk may be deleted; zero: by the retention of all
	// output.
	KeepUntil time.Time
}

// NewJob describes a job to be inserted. Zero values mean the defaults: queue
// "default", priority 1, 25 attempts, due now.
type NewJob struct {
	// ID was taken from River's sequence; 0 takes the next one.
	ID          int64
	Kind        string
	Args        json.RawMessage
	Queue       string
	Priority    int
	MaxAttempts int
	ScheduledAt time.Time
	// ReadyAt is when the job counts as available, if the transaction that inserts
	// it commits no earlier; zero: when the transaction began.
	ReadyAt time.Time
	// Unique prevents that another job of the kind with the same key is added until
	// this one is cancelled, discarded or removed; empty: duplicates are allowed.
	Unique string
	// UniqueBy prevents that the job is added while another job of the kind is
	// equal in these respects; Unique takes precedence.
	UniqueBy UniqueBy
	// Duplicates is what becomes of the job if it is a duplicate. Zero: it is not
	// added.
	Duplicates config.Duplicates
	// Given are the names of what the caller has set, see Rule.
	Given []string
	// Weight is how many units of a rate the job needs; 0: those of its kind.
	Weight int
	// Metadata holds forge's keys, such as KeyCron.
	Metadata map[string]any
}

// UniqueBy is in what a job must differ from existing jobs; with no field set
// duplicates are allowed.
type UniqueBy struct {
	Args, Queue bool
	// ArgNames are the arguments that count, with Args; none: all.
	ArgNames []string
	// Period is the length of the periods, each of which has at most one job.
	Period time.Duration
	// States are the states of jobs that count; empty: all but cancelled and
	// discarded.
	States []string
}

// Enqueued is the result of adding a job.
type Enqueued struct {
	ID   int64  `json:"id"`
	Kind string `json:"kind"`
	// Existing is whether nothing was added: ID is the existing duplicate's.
	Existing bool           `json:"existing,omitempty"`
	Verdict  EnqueueVerdict `json:"verdict"`
	// State is empty for a throttled job whose accepted duplicate is past its retention.
	State string `json:"state"`
	Queue string `json:"queue"`
	// ScheduledAt is when the job is due.
	ScheduledAt time.Time `json:"scheduled_at"`
	// Merged is the number of duplicates whose arguments the job has had since it was
	// added.
	Merged int64 `json:"merged,omitempty"`
	// AcceptsAt is the time from which a throttled job is accepted again.
	AcceptsAt *time.Time `json:"accepts_at,omitempty"`
}
