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
const outlinedSQL = `
SELECT name, updated_at, coalesce(spec ->> 'job', ''), coalesce((spec -> 'paused')::boolean, false)
FROM forge_crons
WHERE name = ANY ($1)`

// Outlined is the part of a cron by which lists of many thousand crons are filtered: pages
// read the rest only of the crons that they show.
type Outlined struct {
	Name, Job string
	// Paused is whether the cron is paused, by its definition or by hand.
	Paused   bool
	NextTick time.Time
	// BlockedBy is the job because of which the newest tick was skipped; 0: none.
	BlockedBy int64

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
	return postgres.ForEach(ctx, s.db, "read the outlined definitions", []any{&name, &updated, &job, &held}, func() error {
		cron := &crons[unknown[name]]
		cron.Job, cron.held, cron.defined = job, held, updated
		cron.Paused = cron.Paused || held
		return nil
	}, outlinedSQL, slices.Collect(maps.Keys(unknown)))
}
