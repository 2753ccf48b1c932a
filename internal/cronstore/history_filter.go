package cronstore

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/filter"
)

// The conditions of applications of configurations.
const (
	isInForce  = "in_force"
	isReverted = "reverted"
)

// HistoryTable declares the keys of the filters of applications of configurations.
var HistoryTable = filter.Table[Application]{
	{
		Key:   filter.Key{Name: "hash", Example: "3f9a*", About: "the hash"},
		Texts: func(a *Application, _ time.Time) []string { return []string{a.Hash} },
	},
	{
		Key:   filter.Key{Name: "by", Example: "ada*", About: "who requested it, or the node that applied its file"},
		Texts: func(a *Application, _ time.Time) []string { return []string{a.By, a.NodeID} },
	},
	{
		Key:   filter.Key{Name: "file", Example: "*/forge.toml", About: "the file"},
		Texts: func(a *Application, _ time.Time) []string { return []string{a.File} },
	},
	{
		Key: filter.Key{Name: "is", Type: filter.Choice, Values: []string{isInForce, isReverted}, Example: isReverted, About: "in force now, or put in force by a revert"},
		Texts: func(a *Application, _ time.Time) (is []string) {
			if a.InForce {
				is = append(is, isInForce)
			}
			if a.Reverted {
				is = append(is, isReverted)
			}
			return is
		},
	},
	{
		Key: filter.Key{Name: "since", Type: filter.Instant, Example: "7d", About: "put in force since then"},
		At:  func(a *Application) time.Time { return a.At },
	},
	{
		Key: filter.Key{Name: "until", Type: filter.Instant, Example: "1h", About: "put in force until then"},
		At:  func(a *Application) time.Time { return a.At },
	},
}

// HistoryQuery selects applications of configurations.
type HistoryQuery struct {
	// Where is nil if all match.
	Where *filter.Filter
	// Oldest begins with the oldest applications rather than the newest.
	Oldest bool
	// Before and After bound the ids; 0 means no bound.
	Before, After int64
	Limit         int
}

// next returns the query of the applications that follow a page.
func (q HistoryQuery) next(page []Application) HistoryQuery {
	if last := page[len(page)-1].ID; q.Oldest {
		q.After = last
	} else {
		q.Before = last
	}
	return q
}

// historyPage is how many applications a search reads at once.
const historyPage = 500

// SearchHistory returns the first applications that match a query, at most its limit.
func (s *Store) SearchHistory(ctx context.Context, q HistoryQuery) (found []Application, err error) {
	if q.Where == nil {
		return s.readHistory(ctx, q, q.Limit)
	}
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	for {
		page, err := s.readHistory(ctx, q, historyPage)
		if err != nil {
			return nil, err
		}
		found = append(found, HistoryTable.Select(q.Where, now, page)...)
		if len(found) >= q.Limit {
			return found[:q.Limit], nil
		}
		if len(page) < historyPage {
			return found, nil
		}
		q = q.next(page)
	}
}
