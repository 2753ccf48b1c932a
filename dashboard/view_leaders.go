package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/rollupstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// nodeName is a node on a page: its id and its colour.
type nodeName struct {
	ID    string
	Color string
}

type leaderCard struct {
	Role   string
	Title  string
	Duty   string
	Vacant bool
	// Idle reports that the role has no leader and no present node may lead it.
	Idle bool
	// Holder is the session that holds the role's lock without leading.
	Holder string
	Node   nodeName
	URL    string
	Mine   bool
	Term   int64
	Since  stamp
	// The lease bar: LeaseMS is the duration of a full bar, Until the expiry, and Left the
	// current width.
	LeaseMS int64
	Until   stamp
	Left    string
	// Renewals of the last hour, and Heartbeats of the node since Started, that succeeded;
	// empty if none are recorded.
	Renewals, Heartbeats string
	Started              stamp
	// Acts are the buttons for the leader.
	Acts []act
}

type tenureRow struct {
	Role     string
	Node     nodeName
	Term     int64
	Acquired stamp
	Lasted   string
	// Since counts up while the tenure lasts. Lasted is then empty.
	Since  stamp
	Reason string
	Tone   string
	Gap    string
}

// roleDescriptions describe the built-in roles.
var roleDescriptions = map[string]string{
	SchedulerRole:        "Fires crons and assigns jobs",
	"metrics_aggregator": "Writes the cluster's totals",
	"log_compactor":      "Applies retention",
}

// needsLeader reports whether a role must have a leader: the built-in roles always, others
// while a present node may lead them. Rows of roles that a program no longer has remain.
func needsLeader(role string, nodes []nodestore.Node) bool {
	_, builtIn := roleDescriptions[role]
	return builtIn || hasCandidate(role, nodes)
}

// hasCandidate reports whether a present node may lead a role.
func hasCandidate(role string, nodes []nodestore.Node) bool {
	return slices.ContainsFunc(nodes, func(n nodestore.Node) bool {
		return n.Present() && slices.Contains(n.Roles, role)
	})
}

func roleWords(role string) string { return strings.ReplaceAll(role, "_", " ") }

func roleTitle(role string) string { return capital(roleWords(role)) }

func leaderCards(facts clusterFacts, self Self) []leaderCard {
	cards := make([]leaderCard, 0, len(facts.leaders))
	for _, l := range facts.leaders {
		card := leaderCard{
			Role: l.Role, Title: roleTitle(l.Role), Duty: cmp.Or(roleDescriptions[l.Role], "A role of your program"), Term: l.Term,
			Vacant: !l.Leads(), Idle: !l.Leads() && !hasCandidate(l.Role, facts.nodes),
		}
		switch {
		case !card.Vacant:
			lease := l.LeaseUntil.Sub(l.RenewedAt)
			card.Node = nodeName{l.NodeID, facts.colors.of(l.NodeID)}
			card.Mine = l.NodeID == self.NodeID
			card.URL = safeURL(l.APIURL)
			card.Since = newStamp(modeSince, facts.now, l.AcquiredAt)
			card.LeaseMS = lease.Milliseconds()
			card.Until = newStamp(modeLeft, facts.now, l.LeaseUntil).moving(leaseOf(l.Role))
			card.Left = scale{start: l.RenewedAt, width: max(lease, 1)}.between(facts.now, l.LeaseUntil)
		case l.LockHolder != nil:
			card.Holder = plainText(l.LockHolder.String())
		case !l.LeaseUntil.IsZero() && l.NodeID != "":
			card.Since = newStamp(modeSince, facts.now, l.LeaseUntil)
		}
		cards = append(cards, card)
	}
	return cards
}

// rate adds how many renewals and heartbeats succeeded.
func (c *leaderCard) rate(now time.Time, rates rollupstore.LeaderRates) {
	if rates.Renewals != nil {
		c.Renewals = rates.Renewals.String()
	}
	if rates.Heartbeats != nil {
		c.Heartbeats, c.Started = rates.Heartbeats.String(), newStamp(modeAgo, now, rates.Heartbeats.Since)
	}
}

// reasons describe the end of a tenure and give its tone: normal, abnormal, or unexplained.
var reasons = map[string]struct{ words, tone string }{
	"resigned":      {"resigned", "idle"},
	"stepped_down":  {"stepped down", "idle"},
	"transferred":   {"transferred", "idle"},
	"crashed":       {"crashed", "bad"},
	"lease_expired": {"lease expired", "warn"},
	"evicted":       {"evicted", "warn"},
	"database_lost": {"database lost", "warn"},
	"unknown":       {"unknown", "idle"},
}

// tenureRows returns the rows of the tenures, newest first. now is the end of tenures that
// continue.
func tenureRows(now time.Time, tenures []leaderstore.Tenure, leaders []leaderstore.Leader, colors palette) []tenureRow {
	rows := make([]tenureRow, 0, len(tenures))
	for _, t := range tenures {
		row := tenureRow{
			Role: t.Role, Node: nodeName{t.NodeID, colors.of(t.NodeID)}, Term: t.Term,
			Acquired: newStamp(modeAgo, now, t.AcquiredAt), Gap: "–",
		}
		if t.HasGap {
			row.Gap = precise(t.Gap)
		}
		row.end(now, t, leaders)
		rows = append(rows, row)
	}
	return rows
}

func (r *tenureRow) end(now time.Time, t leaderstore.Tenure, leaders []leaderstore.Leader) {
	switch {
	case !t.EndedAt.IsZero():
		r.Lasted = precise(t.EndedAt.Sub(t.AcquiredAt))
	case lasts(t, leaders):
		r.Since = newStamp(modeSince, now, t.AcquiredAt)
		r.Reason, r.Tone = "leading", "ok"
		return
	default:
		r.Lasted = "–"
	}
	r.Reason, r.Tone = "not recorded yet", "idle"
	if reason, ok := reasons[t.EndReason]; ok {
		r.Reason, r.Tone = reason.words, reason.tone
	} else if t.EndReason != "" {
		r.Reason = t.EndReason
	}
	if t.Drill {
		r.Reason += " (drill)"
	}
}

func lasts(t leaderstore.Tenure, leaders []leaderstore.Leader) bool {
	return slices.ContainsFunc(leaders, func(l leaderstore.Leader) bool {
		return l.Role == t.Role && l.Term == t.Term && l.Leads()
	})
}

func newestFirst(tenures []leaderstore.Tenure) []leaderstore.Tenure {
	sorted := slices.Clone(tenures)
	slices.SortStableFunc(sorted, func(a, b leaderstore.Tenure) int { return b.AcquiredAt.Compare(a.AcquiredAt) })
	return sorted
}

// safeURL returns only web addresses, because other nodes write the row and the page links
// to it.
func safeURL(address string) string {
	if strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://") {
		return address
	}
	return ""
}
