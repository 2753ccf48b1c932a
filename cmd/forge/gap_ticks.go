package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// tenureRow is a tenure and, for the scheduler's, the verdicts of the ticks that fell due in the gap
// before it.
type tenureRow struct {
	leaderstore.Tenure
	ticks map[cronstore.Verdict]int64
}

// MarshalJSON adds the ticks to the tenure's own document.
func (r tenureRow) MarshalJSON() ([]byte, error) {
	tenure, err := json.Marshal(r.Tenure)
	if err != nil || len(r.ticks) == 0 {
		return tenure, err
	}
	ticks, err := json.Marshal(r.ticks)
	if err != nil {
		return nil, err
	}
	return slices.Concat(tenure[:len(tenure)-1], []byte(`,"gap_ticks":`), ticks, []byte("}")), nil
}

// gapTicks shows how many ticks fell due in the gap, by verdict.
func (r tenureRow) gapTicks() string {
	if r.Role != string(roles.Scheduler) || !r.HasGap {
		return "-"
	}
	if len(r.ticks) == 0 {
		return "none"
	}
	var parts []string
	for _, verdict := range slices.Sorted(maps.Keys(r.ticks)) {
		parts = append(parts, fmt.Sprintf("%d %s", r.ticks[verdict], verdict))
	}
	return strings.Join(parts, ", ")
}

// withGapTicks adds to each tenure of the scheduler the ticks of the gap before it.
func withGapTicks(ctx context.Context, pool *pgxpool.Pool, tenures []leaderstore.Tenure) ([]tenureRow, error) {
	rows := make([]tenureRow, len(tenures))
	var gaps []cronstore.Stretch
	var of []int
	for i, t := range tenures {
		rows[i].Tenure = t
		if t.Role == string(roles.Scheduler) && t.HasGap {
			gaps = append(gaps, cronstore.Stretch{After: t.AcquiredAt.Add(-t.Gap), Until: t.AcquiredAt})
			of = append(of, i)
		}
	}
	if len(gaps) == 0 {
		return rows, nil
	}
	counts, err := cronstore.New(pool).DueIn(ctx, gaps)
	if err != nil {
		return nil, err
	}
	for g, i := range of {
		rows[i].ticks = counts[g]
	}
	return rows, nil
}
