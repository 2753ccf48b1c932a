package cronstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// Verdict is the outcome of a due tick.
type Verdict string

// Verdicts of the ledger.
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

// Fires reports whether a tick with this verdict has a job that the leader
// inserted.
func (v Verdict) Fires() bool { return v == Fired || v == CaughtUp }

// Spec is a cron's definition as it was applied: everything that the scheduler's
// leader needs to fire it, regardless of the file of its own node.
type Spec struct {
	Schedule    string          `json:"schedule"`
	Timezone    string          `json:"timezone"`
	Job         string          `json:"job"`
	Args        json.RawMessage `json:"args,omitempty"`
	Paused      bool            `json:"paused,omitempty"`
	Overlap     string          `json:"overlap"`
	CatchUp     string          `json:"catch_up"`
	CatchUpMax  int             `json:"catch_up_limit"`
	CatchUpSpan config.Duration `json:"catch_up_window"`
	DSTMissing  string          `json:"dst_missing"`
	DSTRepeated string          `json:"dst_repeated"`
	StartAt     time.Time       `json:"start_at,omitzero"`
	EndAt       time.Time       `json:"end_at,omitzero"`
	Exclude     []string        `json:"exclude,omitempty"`
	Jitter      config.Duration `json:"jitter,omitempty"`
	// OnFailure are the targets that are notified of a run that failed for good.
	// The database's triggers read it, see migration 005.
	OnFailure []string `json:"on_failure,omitempty"`
	// The job's settings, resolved when the file was applied.
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
	// Blocked is zero unless the newest tick was skipped because of an earlier run.
	Blocked Blocked `json:"blocked,omitzero"`
	// Earlier holds earlier definitions that may have ticks after the watermark, oldest
	// first.
	Earlier []Era `json:"-"`
	// Last is the newest row of the ledger; nil if there is none.
	Last *Tick `json:"last,omitempty"`

	// unreadable is why this binary cannot decode the definition.
	unreadable error
}

// Blocked means that an earlier run keeps a cron from firing.
type Blocked struct {
	// By is the job of that run.
	By int64 `json:"job_id"`
	// Since is the first tick that was skipped since the cron last fired.
	Since time.Time `json:"since"`
}

// sameTiming reports whether two definitions are due at the same times.
func (s Spec) sameTiming(o Spec) bool {
	return s.Schedule == o.Schedule && s.Timezone == o.Timezone && s.DSTMissing == o.DSTMissing &&
		s.DSTRepeated == o.DSTRepeated && s.Paused == o.Paused && s.Jitter == o.Jitter &&
		s.StartAt.Equal(o.StartAt) && s.EndAt.Equal(o.EndAt) && slices.Equal(s.Exclude, o.Exclude)
}

// Parse parses the schedule of a cron.
func (s Spec) Parse(cron string) (*cronexpr.Schedule, error) {
	return cronexpr.Parse(s.Schedule, cronexpr.Options{
		Name: cron, Timezone: s.Timezone, DSTMissing: s.DSTMissing, DSTRepeated: s.DSTRepeated,
	})
}

// Era is an earlier definition of a cron whose ticks may not be in the ledger yet. It
// begins at the end of the previous one.
type Era struct {
	Spec
	// Removed is whether the cron was removed from the configuration before the
	// ticks of the era could be recorded: they are not fired.
	Removed bool `json:"removed,omitempty"`
	// Unconfigured is whether the cron was not configured during the era, and came
	// back at its end.
	Unconfigured bool `json:"unconfigured,omitempty"`
	// Until is the era's last instant.
	Until time.Time `json:"until"`
}

// Tick is a row of the ledger.
type Tick struct {
	Cron    string    `json:"cron"`
	Tick    time.Time `json:"tick"`
	Verdict Verdict   `json:"verdict"`
	Reason  string    `json:"reason,omitempty"`
	JobID   int64     `json:"job_id,omitempty"`
	// BlockedBy is the job of the earlier run because of which the tick was skipped
	// or queued.
	BlockedBy  int64     `json:"blocked_by,omitempty"`
	Term       int64     `json:"term"`
	NodeID     string    `json:"node_id"`
	RecordedAt time.Time `json:"recorded_at"`
	LatenessMS float64   `json:"lateness_ms"`
	LastTick   time.Time `json:"last_tick,omitzero"`
	Count      int64     `json:"tick_count"`
	// FiresAt is the tick plus its jitter, from which the lateness is computed.
	// Only QueueRecord reads it; zero means the tick itself.
	FiresAt time.Time `json:"-"`
}

const (
	blockerFormat = "Blocked by job %d"
	blockedFormat = blockerFormat + " (%s)."
)

// BlockedReason returns the Reason of a tick that could not overlap an earlier run:
// its job, and what the job is doing.
func BlockedReason(job int64, doing string) string { return fmt.Sprintf(blockedFormat, job, doing) }

// blockerOf returns the job in a reason, 0 for other reasons.
func blockerOf(reason string) int64 {
	var job int64
	if _, err := fmt.Sscanf(reason, blockerFormat, &job); err != nil {
		return 0
	}
	return job
}

// Late returns how much later than it should have fired a tick is at an instant.
func (t Tick) Late(now time.Time) time.Duration {
	if t.FiresAt.IsZero() {
		return now.Sub(t.Tick)
	}
	return now.Sub(t.FiresAt)
}

// Config is a version of the cluster's sections of forge.toml.
type Config struct {
	Hash      string          `json:"hash"`
	AppliedAt time.Time       `json:"applied_at"`
	AppliedBy string          `json:"applied_by"`
	Cluster   string          `json:"cluster,omitempty"`
	Body      json.RawMessage `json:"body,omitempty"`
}

// Applied is a configuration to be put in force.
type Applied struct {
	Hash   string
	NodeID string
	// Body is the recorded text of the cluster's sections.
	Body json.RawMessage
	// Crons are all crons of the file, by name.
	Crons map[string]Spec
	// Cluster is the cluster name in the file; may be empty.
	Cluster string
	// Confirm is called before anything changes; an error rejects the
	// configuration. nil: no configuration is rejected.
	Confirm func(Review) error
	// preview neither locks nor changes anything.
	preview bool
	// Also writes the other parts of the file in the same transaction; may be nil.
	Also func(ctx context.Context, tx pgx.Tx) error
}

// State is the state of a configuration, as Apply found it.
type State string

// States of a configuration that is to be applied.
const (
	// StateApplied: it was put in force.
	StateApplied State = "applied"
	// StateInForce: it was already in force. Only deleted rows were inserted again;
	// Added has the names of these crons.
	StateInForce State = "in_force"
	// StateSuperseded: another configuration was applied after it, and nothing was
	// done.
	StateSuperseded State = "superseded"
)

// Outcome is the result of Apply. Added, Changed and Removed are names of crons, in
// order.
type Outcome struct {
	State State `json:"state"`
	// InForce is the hash in force afterwards.
	InForce string   `json:"in_force"`
	Added   []string `json:"added,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Removed []string `json:"removed,omitempty"`
}
