package cronstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const outlineSQL = `
SELECT name, updated_at, paused_at IS NOT NULL, next_tick, coalesce(blocked_by, 0)
FROM forge_crons
WHERE removed_at IS NULL`

// To look into ten thousand definitions takes a good tenth of a second: it is done once
// for each.
const outlinedSQL = `
SELECT name, updated_at, coalesce(spec ->> 'job', ''), coalesce((spec -> 'paused')::boolean, false)
FROM forge_crons
WHERE name = ANY ($1)`

// Outlined is what a list tells of each of thousands of crons.
type Outlined struct {
	Name, Job string
	// Paused by its definition or by hand.
	Paused   bool
	NextTick time.Time
	// BlockedBy is the job because of which its newest tick was skipped; 0: none.
	BlockedBy int64

	// defined is the UpdatedAt of the definition that job and paused are of.
	defined time.Time
	// held is what the definition says of Paused.
	held bool
}

// Outline returns the crons that are configured, in the order of their names' bytes.
// Before is what it returned last, if anything: definitions that are as they were then
// are not read again.
func Outline(ctx context.Context, db Queryer, before []Outlined) ([]Outlined, error) {
	known := make(map[string]*Outlined, len(before))
	for i := range before {
		known[before[i].Name] = &before[i]
	}
	crons, unknown, err := outline(ctx, db, known)
	if err == nil && len(unknown) > 0 {
		err = define(ctx, db, crons, unknown)
	}
	if err != nil {
		return nil, fmt.Errorf("outline crons: %w", err)
	}
	slices.SortFunc(crons, func(a, b Outlined) int { return strings.Compare(a.Name, b.Name) })
	return crons, nil
}

// outline also returns where in crons those are whose definitions are not known.
func outline(ctx context.Context, db Queryer, known map[string]*Outlined) (crons []Outlined, unknown map[string]int, err error) {
	rows, err := db.Query(ctx, outlineSQL)
	if err != nil {
		return nil, nil, err
	}
	crons, unknown = make([]Outlined, 0, len(known)), map[string]int{}
	var (
		name    string
		updated time.Time
		paused  bool
		next    *time.Time
		blocker int64
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &updated, &paused, &next, &blocker}, func() error {
		cron := Outlined{Name: name, NextTick: instant(next), BlockedBy: blocker}
		if was, ok := known[name]; ok && was.defined.Equal(updated) {
			cron.Job, cron.held, cron.defined = was.Job, was.held, updated
		} else {
			unknown[name] = len(crons)
		}
		cron.Paused = paused || cron.held
		crons = append(crons, cron)
		return nil
	})
	return crons, unknown, err
}

// define fills in what the definitions say.
func define(ctx context.Context, db Queryer, crons []Outlined, unknown map[string]int) error {
	names := make([]string, 0, len(unknown))
	for name := range unknown {
		names = append(names, name)
	}
	rows, err := db.Query(ctx, outlinedSQL, names)
	if err != nil {
		return err
	}
	var (
		name, job string
		updated   time.Time
		held      bool
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &updated, &job, &held}, func() error {
		cron := &crons[unknown[name]]
		cron.Job, cron.held, cron.defined = job, held, updated
		cron.Paused = cron.Paused || held
		return nil
	})
	return err
}
