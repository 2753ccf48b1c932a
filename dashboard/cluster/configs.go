package cluster

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/activity"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/filter"
)

// HistoryQuery returns the query of the parameters sort, before and after, for at most limit
// applications that match a filter.
func HistoryQuery(q *web.Query, where *filter.Filter, limit int) cronstore.HistoryQuery {
	return cronstore.HistoryQuery{
		Where: where, Oldest: SortOf(q, activity.Orders) == activity.Oldest, Before: q.Number("before"), After: q.Number("after"), Limit: limit,
	}
}

// HistoryBound returns the parameter that holds the last id of a page in the address of the next one.
func HistoryBound(q cronstore.HistoryQuery) string {
	if q.Oldest {
		return "after"
	}
	return "before"
}

// Configs reads the configurations that were in force. A configuration is given by the beginning
// of its hash.
type Configs interface {
	// SearchHistory returns the first applications of configurations that match a query.
	SearchHistory(ctx context.Context, q cronstore.HistoryQuery) ([]cronstore.Application, error)
	// DiffConfigs compares two configurations. An empty from is the one that was in force
	// before to.
	DiffConfigs(ctx context.Context, from, to string) (cronstore.ConfigDiff, error)
	// PlanRevert compares an earlier configuration with the one in force. It includes the runs
	// that would appear and vanish within ahead from now.
	PlanRevert(ctx context.Context, hash string, ahead time.Duration) (cronstore.RevertPlan, error)
	// Revert puts an earlier configuration in force again. It calls confirm before it changes
	// anything, and returns confirm's error.
	Revert(ctx context.Context, hash string, confirm func(cronstore.Review) error) (cronstore.Outcome, error)
}
