package aggregator

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const instantsSQL = `SELECT DISTINCT at FROM forge_metrics_cluster WHERE at >= $1 ORDER BY at`

const namesSQL = `SELECT DISTINCT metric FROM forge_metrics_cluster WHERE at >= $1`

const recentSQL = `
SELECT ` + pointColumns + `
FROM forge_metrics_cluster
WHERE at >= $1 AND metric = ANY($2)
ORDER BY at`

// Totals are the cluster's totals at one instant.
type Totals struct {
	At      time.Time
	Samples []metrics.Sample
}

// Recent returns the totals of the wanted metrics at each instant since one at
// which the cluster was summed. A total is written when it changes; in between, the
// last value is valid for as long as holds returns.
func (s *Store) Recent(ctx context.Context, interval time.Duration, since time.Time, want func(name string) bool) ([]Totals, error) {
	all, err := s.recent(ctx, holds(interval), since, want)
	if err != nil {
		return nil, fmt.Errorf("read the recent totals: %w", err)
	}
	return all, nil
}

func (s *Store) recent(ctx context.Context, hold time.Duration, since time.Time, want func(name string) bool) ([]Totals, error) {
	from := since.Add(-hold)
	instants, err := postgres.Collect(ctx, s.db, pgx.RowTo[time.Time], instantsSQL, from)
	if err != nil {
		return nil, err
	}
	names, err := postgres.Collect(ctx, s.db, pgx.RowTo[string], namesSQL, from)
	if err != nil {
		return nil, err
	}
	var wanted []string
	for _, name := range names {
		if want(name) {
			wanted = append(wanted, name)
		}
	}
	points, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Point], recentSQL, from, wanted)
	if err != nil {
		return nil, err
	}
	return fillIn(instants, points, since, hold), nil
}

// fillIn returns the value of each series at each instant from since on. Points and
// instants are ordered by time.
func fillIn(instants []time.Time, points []Point, since time.Time, hold time.Duration) []Totals {
	now := map[string]Point{}
	var all []Totals
	for _, at := range instants {
		for len(points) > 0 && !points[0].At.After(at) {
			now[seriesKey(points[0].Sample)] = points[0]
			points = points[1:]
		}
		if at.Before(since) {
			continue
		}
		totals := Totals{At: at}
		for key, p := range now {
			if at.Sub(p.At) > hold {
				delete(now, key)
				continue
			}
			totals.Samples = append(totals.Samples, p.Sample)
		}
		all = append(all, totals)
	}
	return all
}
