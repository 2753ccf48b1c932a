package cronstore

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/postgres"
)

const outlineSQL = `
SELECT name, updated_at, paused_at IS NOT NULL, next_tick, coalesce(blocked_by, 0)
FROM forge_crons
WHERE removed_at IS NULL`

// Reading ten thousand definitions takes more than a tenth of a second, so each is
// read only once.
const (
	definitionsSQL = `
SELECT name, updated_at, coalesce(spec ->> 'job', ''), coalesce((spec -> 'paused')::boolean, false)
FROM forge_crons`
	someDefinitionsSQL = definitionsSQL + `
WHERE name = ANY ($1)`
)

// manyDefinitions is the number from which on all definitions are read, which then is faster
// than to look each of them up.
const manyDefinitions = 20_000

// The newest row of each cron is one lookup in the ledger's primary key.
const verdictsSQL = `
SELECT c.name, t.verdict
FROM forge_crons AS c,
     LATERAL (SELECT verdict FROM forge_cron_ticks WHERE cron = c.name ORDER BY tick DESC LIMIT 1) AS t
WHERE c.removed_at IS NULL`

// Outlined is the part of a cron by which lists of many thousand crons are filtered: pages
// read the rest only of the crons that they show.
type Outlined struct {
	Name, Job string
	// Paused is whether the cron is paused, by its definition or by hand.
	Paused   bool
	NextTick time.Time
	// BlockedBy is the job because of which the newest tick was skipped; 0: none.
	BlockedBy int64
	// Last is the verdict of the newest row of the ledger; empty if there is none. Outline does
	// not read it, but Verdicts does.
	Last Verdict

	// defined is the UpdatedAt of the definition from which job and held were read.
	defined time.Time
	// held is whether the definition pauses the cron.
	held bool
}

// Outline returns the configured crons, ordered by the bytes of their names. before
// is the previous result, if any: unchanged definitions are not read again.
func (s *Store) Outline(ctx context.Context, before []Outlined) ([]Outlined, error) {
	known := make(map[string]*Outlined, len(before))
	for i := range before {
		known[before[i].Name] = &before[i]
	}
	crons, unknown, err := s.outline(ctx, known)
	if err == nil && len(unknown) > 0 {
		err = s.define(ctx, crons, unknown)
	}
	slices.SortFunc(crons, func(a, b Outlined) int { return strings.Compare(a.Name, b.Name) })
	return crons, err
}

// outline also returns the indexes in crons of the crons whose definitions are
// unknown.
func (s *Store) outline(ctx context.Context, known map[string]*Outlined) (crons []Outlined, unknown map[string]int, err error) {
	crons, unknown = make([]Outlined, 0, len(known)), map[string]int{}
	var (
		cron    Outlined
		updated time.Time
		paused  bool
	)
	targets := []any{&cron.Name, &updated, &paused, (*nullTime)(&cron.NextTick), &cron.BlockedBy}
	err = postgres.ForEach(ctx, s.db, "outline crons", targets, func() error {
		cron.Job, cron.held, cron.defined = "", false, time.Time{}
		if was, ok := known[cron.Name]; ok && was.defined.Equal(updated) {
			cron.Job, cron.held, cron.defined = was.Job, was.held, updated
		} else {
			unknown[cron.Name] = len(crons)
		}
		cron.Paused = paused || cron.held
		crons = append(crons, cron)
		return nil
	}, outlineSQL)
	return crons, unknown, err
}

// define sets the fields that are read from definitions.
func (s *Store) define(ctx context.Context, crons []Outlined, unknown map[string]int) error {
	var (
		name, job string
		updated   time.Time
		held      bool
	)
	sql, args := definitionsSQL, []any(nil)
	if len(unknown) < manyDefinitions {
		sql, args = someDefinitionsSQL, []any{slices.Collect(maps.Keys(unknown))}
	}
	return postgres.ForEach(ctx, s.db, "read the outlined definitions", []any{&name, &updated, &job, &held}, func() error {
		i, ok := unknown[name]
		if !ok {
			return nil
		}
		cron := &crons[i]
		cron.Job, cron.held, cron.defined = job, held, updated
		cron.Paused = cron.Paused || held
		return nil
	}, sql, args...)
}

// Verdicts returns the verdict of the newest row in the ledger of each configured cron that
// has one.
func (s *Store) Verdicts(ctx context.Context) (map[string]Verdict, error) {
	var name string
	var verdict Verdict
	verdicts := map[string]Verdict{}
	err := postgres.ForEach(ctx, s.db, "list the last verdicts", []any{&name, &verdict}, func() error {
		verdicts[name] = verdict
		return nil
	}, verdictsSQL)
	return verdicts, err
}
