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
	"github.com/forge-scheduler/forge/internal/postgres"
)

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
	// Description, Owner and Runbook, an address, are for people.
	Description string `json:"description,omitempty"`
	Owner       string `json:"owner,omitempty"`
	Runbook     string `json:"runbook,omitempty"`
	// The job's settings, resolved when the file was applied.
	Queue       string            `json:"queue"`
	Priority    int               `json:"priority"`
	MaxAttempts int               `json:"max_attempts"`
	Capability  string            `json:"capability,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
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

// Cron is a row of forge_crons: a definition, and how far its ticks are in the ledger. It
// is also the document of a cron in the API and in the output of commands.
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
	// PauseChange is the last pause or resumption by hand; nil if there was none.
	PauseChange *PauseChange `json:"pause_change,omitempty"`
	// Earlier holds earlier definitions that may have ticks after the watermark, oldest
	// first.
	Earlier []Era `json:"-"`
	// Last is the newest row of the ledger; nil if there is none.
	Last *Tick `json:"last,omitempty"`

	// unreadable is why this binary cannot decode the definition.
	unreadable error
}

// Describe returns the schedule in plain English; empty if this binary cannot parse it.
func (c *Cron) Describe() string {
	schedule, err := c.Spec.Parse(c.Name)
	if err != nil {
		return "" // written by another version of forge
	}
	return schedule.Describe()
}

// Blocked means that an earlier run keeps a cron from firing.
type Blocked struct {
	// By is the job of that run.
	By int64 `json:"job_id"`
	// Since is the first tick that was skipped since the cron last fired.
	Since time.Time `json:"since"`
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

// Paused reports whether the cron is paused, by hand or by the file.
func (c *Cron) Paused() bool { return c.Spec.Paused || !c.PausedAt.IsZero() }

const cronColumns = `c.name, c.spec, ` + stateColumns

// stateColumns are the columns beside the name and the definition.
const stateColumns = `
c.spec_hash, c.created_at, c.updated_at, c.removed_at, c.paused_at, c.watermark, c.next_tick,
coalesce(c.blocked_by, 0), c.blocked_since, c.pause_change`

const listColumns = cronColumns + `, coalesce(l.verdict, ''), l.tick, l.last_tick, coalesce(l.reason, ''),
       coalesce(l.job_id, 0), coalesce(l.term, 0), coalesce(l.node_id, ''), l.recorded_at,
       coalesce(l.lateness_ms, 0), coalesce(l.tick_count, 0)`

// The newest row of each cron is one lookup in the ledger's primary key.
const newestRowSQL = `
LEFT JOIN LATERAL (
    SELECT * FROM forge_cron_ticks AS t WHERE t.cron = c.name ORDER BY t.tick DESC LIMIT 1
) AS l ON true`

// Names are ordered by their bytes, as Go compares them: the database's order may
// be that of a language.
const listSQL = `
SELECT ` + listColumns + `
FROM forge_crons AS c` + newestRowSQL + `
WHERE CASE WHEN $1 = '' THEN c.removed_at IS NULL ELSE c.name = $1 END
  AND ($2::text[] IS NULL OR c.name = ANY ($2))
ORDER BY c.name COLLATE "C"`

const namesSQL = `SELECT name FROM forge_crons WHERE removed_at IS NULL ORDER BY name COLLATE "C"`

// List returns the configured crons, ordered by the bytes of their names, each with
// the newest row of its ledger.
func (s *Store) List(ctx context.Context) ([]Cron, error) {
	return s.some(ctx, nil)
}

// Names returns the names of the configured crons, ordered by their bytes.
func (s *Store) Names(ctx context.Context) ([]string, error) {
	return postgres.Select(ctx, s.db, "list the names of crons", pgx.RowTo[string], namesSQL)
}

// Some returns the configured crons among these, with the same fields as List.
func (s *Store) Some(ctx context.Context, names []string) ([]Cron, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return s.some(ctx, names)
}

// some returns all configured crons if names is nil.
func (s *Store) some(ctx context.Context, names []string) ([]Cron, error) {
	return postgres.Select(ctx, s.db, "list crons", scanListed, listSQL, "", names)
}

const contactsSQL = `
SELECT name, coalesce(spec ->> 'owner', ''), coalesce(spec ->> 'runbook', '') FROM forge_crons
WHERE name = ANY ($1) AND spec ?| ARRAY ['owner', 'runbook']`

// Contact says who owns a cron, and where to read what to do about it.
type Contact struct{ Cron, Owner, Runbook string }

// Contacts returns the contacts of these crons that have one.
func (s *Store) Contacts(ctx context.Context, names []string) ([]Contact, error) {
	return postgres.Select(ctx, s.db, "read owners and runbooks", pgx.RowToStructByPos[Contact], contactsSQL, names)
}

// Get returns one cron, even if it was removed, or ErrNotFound.
func (s *Store) Get(ctx context.Context, name string) (Cron, error) {
	if name == "" {
		return Cron{}, fmt.Errorf("cron without a name: %w", ErrNotFound)
	}
	cron, found, err := postgres.First(ctx, s.db, "get cron "+name, scanListed, listSQL, name, nil)
	if err == nil && !found {
		err = fmt.Errorf("cron %s: %w", name, ErrNotFound)
	}
	return cron, err
}

// targets are the variables for cronColumns; decode reads spec.
func (c *Cron) targets(spec *[]byte) []any {
	return []any{
		&c.Name, spec, &c.SpecHash, &c.CreatedAt, &c.UpdatedAt, (*nullTime)(&c.RemovedAt), (*nullTime)(&c.PausedAt),
		&c.Watermark, (*nullTime)(&c.NextTick), &c.Blocked.By, (*nullTime)(&c.Blocked.Since), &c.PauseChange,
	}
}

// encode returns the column spec: the definition, and beside its keys the earlier ones.
func (c *Cron) encode() ([]byte, error) {
	return json.Marshal(struct {
		Spec
		Earlier []Era `json:"earlier,omitempty"`
	}{c.Spec, c.Earlier})
}

func (c *Cron) decode(spec []byte) error {
	document := struct {
		*Spec
		Earlier *[]Era `json:"earlier"`
	}{&c.Spec, &c.Earlier}
	if err := json.Unmarshal(spec, &document); err != nil {
		c.Spec, c.Earlier = Spec{}, nil
		c.unreadable = fmt.Errorf("decode the definition of cron %s: %w", c.Name, err)
	}
	return c.unreadable
}

func scanCron(row pgx.CollectableRow) (c Cron, err error) {
	var spec []byte
	if err := row.Scan(c.targets(&spec)...); err != nil {
		return c, err
	}
	return c, c.decode(spec)
}

func scanListed(row pgx.CollectableRow) (c Cron, err error) {
	var (
		spec []byte
		last Tick
	)
	if err := row.Scan(append(c.targets(&spec), &last.Verdict, (*nullTime)(&last.Tick), (*nullTime)(&last.LastTick), &last.Reason,
		&last.JobID, &last.Term, &last.NodeID, (*nullTime)(&last.RecordedAt), &last.LatenessMS, &last.Count)...); err != nil {
		return c, err
	}
	if !last.Tick.IsZero() {
		last.Cron, last.BlockedBy = c.Name, blockerOf(last.Reason)
		c.Last = &last
	}
	return c, c.decode(spec)
}
