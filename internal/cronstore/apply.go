package cronstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

// Applied is a configuration to be put in force.
type Applied struct {
	Origin

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
	// names are those of Crons, in order.
	names []string
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

// Definitions change one writer at a time. The leader only locks the rows for which
// it records ticks.
const lockDefinitionsSQL = `SELECT pg_advisory_xact_lock(hashtextextended('forge_crons:definitions', 0))`

const knownConfigSQL = `
SELECT coalesce(f.hash, ''), coalesce(f.cluster, ''), EXISTS (SELECT FROM forge_config WHERE hash = $1)
       OR EXISTS (SELECT FROM forge_config_history WHERE hash = $1)
FROM (VALUES (0)) AS one (row)
LEFT JOIN (SELECT hash, cluster FROM forge_config ORDER BY applied_at DESC LIMIT 1) AS f ON true`

// The same crons under another cluster name: the cluster was renamed.
const renameClusterSQL = `UPDATE forge_config SET cluster = $2 WHERE hash = $1 AND cluster <> $2`

// applied_at increases even if the database's clock was set back.
const recordConfigSQL = `
INSERT INTO forge_config (hash, applied_by, body, cluster, applied_at)
SELECT $1, $2, $3, $4, greatest(clock_timestamp(), max(applied_at) + interval '1 microsecond') FROM forge_config
ON CONFLICT (hash) DO UPDATE
SET applied_at = excluded.applied_at, applied_by = excluded.applied_by, body = excluded.body, cluster = excluded.cluster`

const definedSQL = `SELECT name, spec_hash, removed_at IS NOT NULL FROM forge_crons`

// In the order of names, as the leader locks them. Nothing is read: there may be a million.
const lockOnlySQL = `
SELECT count(*) FROM (
    SELECT FROM forge_crons AS c WHERE c.name = ANY($1) ORDER BY c.name FOR NO KEY UPDATE
) AS locked`

const lockCronsSQL = `
SELECT ` + cronColumns + `
FROM forge_crons AS c
WHERE c.name = ANY($1)
ORDER BY c.name
FOR NO KEY UPDATE`

const upsertCronsSQL = `
INSERT INTO forge_crons (name, spec, spec_hash, updated_at, removed_at, paused_at, watermark, next_tick, pause_change)
SELECT * FROM unnest($1::text[], $2::jsonb[], $3::text[], $4::timestamptz[], $5::timestamptz[],
                     $6::timestamptz[], $7::timestamptz[], $8::timestamptz[], $9::jsonb[])
ON CONFLICT (name) DO UPDATE
SET spec = excluded.spec, spec_hash = excluded.spec_hash, updated_at = excluded.updated_at,
    removed_at = excluded.removed_at, paused_at = excluded.paused_at,
    watermark = excluded.watermark, next_tick = excluded.next_tick, pause_change = excluded.pause_change`

// The channel has the name of the schema of forge's tables, which need not be the first
// of the connection's search_path.
const notifySQL = `
SELECT pg_notify(n.nspname || '.' || $1, '')
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = 'forge_crons'::regclass`

// Apply puts a configuration in force, unless it is in force or was superseded;
// force applies a superseded one again. Everything is one transaction; the leader
// is notified when it commits. An error of a.Confirm is returned, wrapped, and
// nothing is changed in that case.
func (s *Store) Apply(ctx context.Context, a Applied, force bool) (Outcome, error) {
	if err := validate(a.Crons); err != nil {
		return Outcome{}, fmt.Errorf("apply configuration: %w", err)
	}
	// The server ends a transaction that is idle for long: nothing is sorted in it.
	a.names = slices.Sorted(maps.Keys(a.Crons))
	var outcome Outcome
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) (err error) {
		outcome, err = New(tx).apply(ctx, a, force)
		if err != nil || a.preview || a.Also == nil || outcome.State == StateSuperseded {
			return err
		}
		return a.Also(ctx, tx)
	})
	if err != nil {
		return Outcome{}, fmt.Errorf("apply configuration: %w", err)
	}
	return outcome, nil
}

func validate(crons map[string]Spec) error {
	for name, spec := range crons {
		if _, err := spec.Parse(name); err != nil {
			return fmt.Errorf("cron %s: %w", name, err)
		}
	}
	return nil
}

func (s *Store) apply(ctx context.Context, a Applied, force bool) (Outcome, error) {
	if !a.preview {
		if _, err := s.db.Exec(ctx, lockDefinitionsSQL); err != nil {
			return Outcome{}, fmt.Errorf("lock the definitions: %w", err)
		}
	}
	var (
		inForce, cluster string
		known            bool
	)
	if err := s.db.QueryRow(ctx, knownConfigSQL, a.Hash).Scan(&inForce, &cluster, &known); err != nil {
		return Outcome{}, fmt.Errorf("look up the hash: %w", err)
	}
	switch {
	case inForce == a.Hash:
		return s.restoreRows(ctx, a)
	case known && !force:
		return Outcome{State: StateSuperseded, InForce: inForce}, nil
	}
	outcome, configured, err := s.compare(ctx, a.Crons, a.names)
	if err != nil {
		return Outcome{}, err
	}
	if err := a.confirm(Review{Removed: outcome.Removed, Configured: configured, Cluster: a.Cluster, InForce: cluster}); err != nil {
		return Outcome{}, err
	}
	if err := s.applyCrons(ctx, a.Crons, outcome); err != nil {
		return Outcome{}, err
	}
	outcome.State, outcome.InForce = StateApplied, a.Hash
	body := a.Body
	if len(body) == 0 {
		body = json.RawMessage("{}")
	}
	if _, err := s.db.Exec(ctx, recordConfigSQL, a.Hash, a.NodeID, body, a.Cluster); err != nil {
		return Outcome{}, fmt.Errorf("record the configuration: %w", err)
	}
	if err := s.record(ctx, a, outcome); err != nil {
		return Outcome{}, err
	}
	return outcome, s.announce(ctx, a, known, outcome)
}

func (s *Store) renameCluster(ctx context.Context, a Applied) error {
	if a.Cluster == "" {
		return nil
	}
	return postgres.Exec(ctx, s.db, "rename the cluster", renameClusterSQL, a.Hash, a.Cluster)
}

func (s *Store) announce(ctx context.Context, a Applied, again bool, outcome Outcome) error {
	if _, err := s.db.Exec(ctx, notifySQL, wire.CronChannel); err != nil {
		return fmt.Errorf("notify the leader: %w", err)
	}
	facts := map[string]any{
		"hash": a.Hash, "again": again,
		"added": len(outcome.Added), "changed": len(outcome.Changed), "removed": len(outcome.Removed),
		"removed_crons": outcome.Removed[:min(len(outcome.Removed), namedInEvents)],
	}
	if a.By != "" {
		facts["by"] = a.By
	}
	if a.File != "" {
		facts["file"] = a.File
	}
	if a.Reverts {
		facts["reverted"] = true
	}
	return eventstore.New(s.db).Append(ctx, eventstore.Event{Type: eventstore.ConfigApplied, NodeID: a.NodeID}, facts)
}

// namedInEvents bounds the names of removed crons in an event.
const namedInEvents = 100

// applyCrons changes forge_crons to the definitions of the file.
func (s *Store) applyCrons(ctx context.Context, wanted map[string]Spec, outcome Outcome) error {
	touched := slices.Concat(outcome.Added, outcome.Changed, outcome.Removed)
	if len(touched) == 0 {
		return nil
	}
	// The clock is read after no leader can record their ticks any more.
	if err := postgres.Exec(ctx, s.db, "lock crons", lockOnlySQL, touched); err != nil {
		return err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return err
	}
	for page := range slices.Chunk(touched, pageSize) {
		if err := s.applyPage(ctx, page, wanted, now); err != nil {
			return err
		}
	}
	return nil
}

// pageSize is how many crons one statement changes.
const pageSize = 5000

// applyPage changes some crons, which are locked.
func (s *Store) applyPage(ctx context.Context, names []string, wanted map[string]Spec, now time.Time) error {
	found, err := s.lockedCrons(ctx, names)
	if err != nil {
		return err
	}
	rows := make([]Cron, 0, len(names))
	for _, name := range names {
		old, exists := found[name]
		spec, stays := wanted[name]
		var row Cron
		switch {
		case !exists:
			row = begin(name, spec, now)
		case !stays:
			row = retire(old, now)
		default:
			row = revise(old, spec, now)
		}
		rows = append(rows, row)
	}
	return s.upsert(ctx, rows, now)
}

// compare finds the crons that differ from the wanted definitions, and counts the
// configured crons. names are those of wanted, in order.
func (s *Store) compare(ctx context.Context, wanted map[string]Spec, names []string) (outcome Outcome, configured int, err error) {
	var (
		name, hash string
		removed    bool
		known      = make(map[string]bool, len(wanted))
		back       []string // removed crons that are wanted again
	)
	err = postgres.ForEach(ctx, s.db, "read the defined crons", []any{&name, &hash, &removed}, func() error {
		known[name] = true
		if !removed {
			configured++
		}
		spec, stays := wanted[name]
		switch {
		case !stays && !removed:
			outcome.Removed = append(outcome.Removed, name)
		case stays && removed:
			back = append(back, name)
		case stays && hash != specHash(spec):
			outcome.Changed = append(outcome.Changed, name)
		}
		return nil
	}, definedSQL)
	if err != nil {
		return Outcome{}, 0, err
	}
	slices.Sort(back)
	for _, name := range names {
		_, isBack := slices.BinarySearch(back, name)
		if isBack || !known[name] {
			outcome.Added = append(outcome.Added, name)
		}
	}
	slices.Sort(outcome.Changed)
	slices.Sort(outcome.Removed)
	return outcome, configured, nil
}

// lockCrons locks the existing rows and returns them with the database's clock,
// read after no leader can record their ticks any more.
func (s *Store) lockCrons(ctx context.Context, names []string) (map[string]Cron, time.Time, error) {
	found, err := s.lockedCrons(ctx, names)
	if err != nil {
		return nil, time.Time{}, err
	}
	now, err := s.Now(ctx)
	return found, now, err
}

// lockedCrons locks the existing rows and returns them.
func (s *Store) lockedCrons(ctx context.Context, names []string) (map[string]Cron, error) {
	crons, err := postgres.Collect(ctx, s.db, scanCron, lockCronsSQL, names)
	if err != nil {
		return nil, fmt.Errorf("lock crons: %w", err)
	}
	found := make(map[string]Cron, len(crons))
	for _, cron := range crons {
		found[cron.Name] = cron
	}
	return found, nil
}

func (s *Store) upsert(ctx context.Context, crons []Cron, now time.Time) error {
	n := len(crons)
	names, specs, hashes := make([]string, n), make([][]byte, n), make([]string, n)
	updated, watermarks := make([]time.Time, n), make([]time.Time, n)
	removed, paused, next := make([]nullTime, n), make([]nullTime, n), make([]nullTime, n)
	changes := make([]*PauseChange, n)
	for i, c := range crons {
		doc, err := c.encode()
		if err != nil {
			return fmt.Errorf("encode cron %s: %w", c.Name, err)
		}
		names[i], specs[i], hashes[i], updated[i] = c.Name, doc, c.SpecHash, now
		removed[i], paused[i], watermarks[i], next[i] = nullTime(c.RemovedAt), nullTime(c.PausedAt), c.Watermark, nullTime(c.NextTick)
		changes[i] = c.PauseChange
	}
	return postgres.Exec(ctx, s.db, "store crons", upsertCronsSQL, names, specs, hashes, updated, removed, paused, watermarks, next, changes)
}

// specHash returns a hash of a definition. Args that differ only in the order of
// their keys count as different.
func specHash(spec Spec) string {
	body, err := json.Marshal(spec)
	if err != nil { // only for invalid JSON in args: upsert reports it
		return ""
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}
