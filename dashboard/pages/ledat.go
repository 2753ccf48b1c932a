package pages

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/leaderstore"
)

// ledAt is the question who led at an instant, with its answer.
type ledAt struct {
	Keep        []fact
	Field, Zone string
	// At is the instant, empty if the reader has not asked.
	At    string
	Roles []ledAtRow
}

// ledAtRow is the state of a role at the instant.
type ledAtRow struct {
	Role string
	Node charts.Node
	Gap  bool
	Term int64
	// Path is the page of the term, NextPath that of the change of leader that ended the gap.
	Path, NextPath    string
	From, Until, Then string
}

// loadLedAt answers who led at the instant of the address, if it has one.
func (s *Pages) loadLedAt(ctx context.Context, req *request, facts clusterFacts, w window.Window, keep []fact) (ledAt, error) {
	role := req.Values.Get("role")
	q := ledAt{Keep: keep, Zone: w.Zone.String(), Field: w.Field(w.From)}
	if req.Values.Get("at") == "" {
		return q, nil
	}
	at, err := window.Instant("at", req.Values.Get("at"), w.Zone)
	if err != nil {
		return q, web.BadRequest(err)
	}
	if err := cluster.CheckPast("at", at, facts.now); err != nil {
		return q, err
	}
	q.Field, q.At = w.Field(at), format.Clock(at, w.Zone)
	found, err := s.Source.Leadership.LedAt(ctx, at)
	if err != nil {
		return q, fmt.Errorf("read who led: %w", err)
	}
	for _, l := range found {
		if role == "" || l.Role == role {
			q.Roles = append(q.Roles, newLedAtRow(l, w.Zone, facts.colors))
		}
	}
	return q, nil
}

func newLedAtRow(l leaderstore.LedAt, zone *time.Location, colors charts.Palette) ledAtRow {
	row := ledAtRow{Role: l.Role, Gap: l.State == leaderstore.Gap, Term: l.Term, From: clockOf(l.From, zone), Until: clockOf(l.Until, zone)}
	if l.State == leaderstore.Led {
		row.Node, row.Path = colors.Node(l.NodeID), charts.TermPath(l.Role, l.Term)
	}
	if l.NextTerm != 0 {
		row.Then, row.NextPath = fmt.Sprintf("%s, term %d", l.NextNodeID, l.NextTerm), charts.TermPath(l.Role, l.NextTerm)
	} else if l.EndReason != "" {
		row.Then = cmp.Or(charts.Reasons[l.EndReason].Words, l.EndReason)
	}
	return row
}

// clockOf formats an instant with milliseconds; empty for none.
func clockOf(t time.Time, zone *time.Location) string {
	if t.IsZero() {
		return ""
	}
	return t.In(zone).Format("2006-01-02 15:04:05.000 MST")
}
