package pages

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// The limits of the leaders page.
const (
	longHistory   = 2000
	listedTenures = 50
	listedEvents  = 20
)

// longSpans are the spans of this page. The overview has shorter ones too.
var longSpans = charts.Spans[2:]

// tenuresBefore is how many tenures before a window are read, to know from whom the first
// leaders of the window took over.
const tenuresBefore = 50

// electionEvents are the event types about leadership.
var electionEvents = []string{
	eventstore.LeaderElected, eventstore.LeaderLost, eventstore.ElectionStarted, eventstore.HandOverAsked,
	eventstore.LeaderDrilled, eventstore.ClusterDegraded, eventstore.ClusterRecovered,
}

type leadersBody struct {
	base
	Notice    string
	Roles     []charts.SpanLink
	Time      timeControl
	LedAt     ledAt
	Cards     []leaderCard
	Lanes     charts.Swimlane
	Failovers charts.Failovers
	History   []tenureRow
	// Hidden is how many tenures of the span are not listed.
	Hidden int
	Events []eventRow
}

func (s *Pages) loadLeaders(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	role := req.Values.Get("role")
	shown, err := s.window(req, facts.now, time.Hour)
	if err != nil {
		return nil, err
	}
	tenures, err := s.tenuresIn(ctx, role, shown)
	if err != nil {
		return nil, fmt.Errorf("read the history of leaders: %w", err)
	}
	asked := eventstore.Filter{Types: electionEvents, Limit: listedEvents}
	if !shown.Live {
		asked.From, asked.To = shown.From, shown.To
	}
	events, err := s.Source.Events.Find(ctx, asked)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	b := leadersBody{base: base{name: "Leadership", beat: s.fullPulse(facts)}, Notice: handOverNotice(req, facts)}
	b.Roles = roleLinks(facts.leaders, role, shown)
	b.Time = s.timeControl(shown, facts.now, "/leaders", "", longSpans, []string{"role", role})
	if b.LedAt, err = s.loadLedAt(ctx, req, facts, shown, keptFacts(shown, "role", role)); err != nil {
		return nil, err
	}
	if role != "" {
		facts.leaders = slices.DeleteFunc(slices.Clone(facts.leaders), func(l leaderstore.Leader) bool { return l.Role != role })
	}
	b.draw(facts, newestFirst(tenures), shown)
	rates, err := s.Rates.Get(ctx)
	if err != nil {
		return nil, err
	}
	b.Cards = s.addActs(req, leaderCards(facts, s.Self), facts)
	for i, card := range b.Cards {
		b.Cards[i].rate(facts.now, rates.Of(card.Role, card.Node.ID))
	}
	b.Events = eventRows(facts, events, role)
	return &b, nil
}

// tenuresIn reads the tenures that overlap a window, and some before it.
func (s *Pages) tenuresIn(ctx context.Context, role string, w window.Window) ([]leaderstore.Tenure, error) {
	asked := leaderstore.TenureFilter{Role: role, From: w.From, Limit: longHistory}
	if !w.Live {
		asked.To = w.To
	}
	tenures, err := s.Source.Leadership.Tenures(ctx, asked)
	if err != nil {
		return nil, err
	}
	before, err := s.Source.Leadership.Tenures(ctx, leaderstore.TenureFilter{Role: role, To: w.From, Limit: tenuresBefore})
	for _, t := range before {
		if !t.EndedAt.IsZero() && !t.EndedAt.After(w.From) { // the others are among the first ones
			tenures = append(tenures, t)
		}
	}
	return tenures, err
}

// keptFacts returns the parameters that a form keeps.
func keptFacts(w window.Window, more ...string) []fact {
	var kept []fact
	pairs := append(w.Pairs(), more...)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			kept = append(kept, fact{pairs[i], pairs[i+1]})
		}
	}
	return kept
}

// draw fills in the history of the window.
func (b *leadersBody) draw(facts clusterFacts, tenures []leaderstore.Tenure, w window.Window) {
	b.Lanes = charts.DrawSwimlane(facts.now, w, facts.leaders, tenures, facts.colors)
	b.Failovers = charts.DrawFailovers(facts.now, w, tenures, facts.colors)
	shown := slices.DeleteFunc(slices.Clone(tenures), func(t leaderstore.Tenure) bool {
		return !t.EndedAt.IsZero() && !t.EndedAt.After(w.From)
	})
	b.Hidden = max(len(shown)-listedTenures, 0)
	b.History = tenureRows(facts.now, shown[:len(shown)-b.Hidden], facts.leaders, facts.colors)
}

func roleLinks(leaders []leaderstore.Leader, role string, w window.Window) []charts.SpanLink {
	path := func(role string) string { return "/leaders?" + web.Encode(append(w.Pairs(), "role", role)...) }
	links := []charts.SpanLink{{Name: "All roles", Path: path(""), Current: role == ""}}
	for _, l := range leaders {
		links = append(links, charts.SpanLink{Name: roleTitle(l.Role), Path: path(l.Role), Current: l.Role == role})
	}
	return links
}

// addActs adds the buttons to the cards of leaders.
func (s *Pages) addActs(req *request, cards []leaderCard, facts clusterFacts) []leaderCard {
	if s.RoleOps == nil || !req.may(route.Admin) {
		return cards
	}
	for i, card := range cards {
		if !card.Vacant && len(handover.Candidates(facts.nodes, facts.leaders[i])) > 0 {
			cards[i].Acts = []act{
				{rolePath(card.Role) + "/" + didStepDown, "Step down", "stop"},
				{rolePath(card.Role) + "/" + didTransfer, "Transfer", "retry"},
			}
		}
	}
	return cards
}

// eventRow is an entry of the event log.
type eventRow struct {
	ID   int64
	At   format.Stamp
	What string
	Role string
	Node charts.Node
	Term int64
	More string
	// Path is the address of the incident that the event belongs to.
	Path string
}

func eventRows(facts clusterFacts, events []eventstore.Event, role string) []eventRow {
	rows := make([]eventRow, 0, len(events))
	for _, e := range events {
		if role != "" && e.Role != role {
			continue
		}
		rows = append(rows, eventRow{
			ID: e.ID, At: format.NewStamp(format.ModeAgo, facts.now, e.At), What: strings.ReplaceAll(e.Type, "_", " "), Role: e.Role,
			Node: facts.colors.Node(e.NodeID), Term: e.Term, More: eventWords(e.Data), Path: eventPath(e.Type, e.Role, e.Term),
		})
	}
	return rows
}

// eventWords describes the facts of an event that matter to readers.
func eventWords(data json.RawMessage) string {
	var told struct {
		Reason, By, To string
		Causes         []string
		Jobs           int
		Cause          string
		GapMS          *float64 `json:"gap_ms"`
		AfterMS        *float64 `json:"after_ms"`
	}
	if json.Unmarshal(data, &told) != nil {
		return "" // written by another version
	}
	words := told.Causes
	if told.Reason != "" {
		words = append(words, strings.ReplaceAll(told.Reason, "_", " "))
	}
	if told.Jobs > 0 && told.Cause != "" {
		words = append(words, format.Plural(told.Jobs, "job", "jobs"), told.Cause)
	}
	if told.To != "" {
		words = append(words, "to "+told.To)
	}
	if told.By != "" {
		words = append(words, "by "+told.By)
	}
	if told.GapMS != nil {
		words = append(words, "after "+format.Millis(*told.GapMS)+" without a leader")
	}
	if told.AfterMS != nil {
		words = append(words, "after "+format.Millis(*told.AfterMS))
	}
	return format.PlainText(strings.Join(words, ", "))
}

// handOverNotice reports the request of the form that redirected to the page, and the
// current leader.
func handOverNotice(req *request, facts clusterFacts) string {
	role, to := req.Values.Get("of"), req.Values.Get("target")
	i := slices.IndexFunc(facts.leaders, func(l leaderstore.Leader) bool { return l.Role == role })
	if i < 0 {
		return ""
	}
	now := "It has no leader at the moment."
	if l := facts.leaders[i]; l.Leads() {
		now = fmt.Sprintf("%s leads it now, in term %d.", l.NodeID, l.Term)
	}
	switch req.Values.Get("did") {
	case didStepDown:
		return "The leader of " + roleWords(role) + " was asked to step down. " + now
	case didTransfer:
		return "The leader of " + roleWords(role) + " was asked to hand over to " + to + ". " + now
	default:
		return ""
	}
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
	Node   charts.Node
	URL    string
	Mine   bool
	Term   int64
	Since  format.Stamp
	// The lease bar: LeaseMS is the duration of a full bar, Until the expiry, and Left the
	// current width.
	LeaseMS int64
	Until   format.Stamp
	Left    string
	// Renewals of the last hour, and Heartbeats of the node since Started, that succeeded;
	// empty if none are recorded.
	Renewals, Heartbeats string
	Started              format.Stamp
	// Acts are the buttons for the leader.
	Acts []act
}

type tenureRow struct {
	Role     string
	Node     charts.Node
	Term     int64
	Acquired format.Stamp
	Lasted   string
	// Since counts up while the tenure lasts. Lasted is then empty.
	Since  format.Stamp
	Reason string
	Tone   string
	Gap    string
	// Path is the address of the page about the change of leader.
	Path string
}

// roleDescriptions describe the built-in roles.
var roleDescriptions = map[string]string{
	cluster.SchedulerRole: "Fires crons and assigns jobs",
	"metrics_aggregator":  "Writes the cluster's totals",
	"log_compactor":       "Applies retention",
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

func roleTitle(role string) string { return format.Capital(roleWords(role)) }

func leaderCards(facts clusterFacts, self cluster.Self) []leaderCard {
	cards := make([]leaderCard, 0, len(facts.leaders))
	for _, l := range facts.leaders {
		card := leaderCard{
			Role: l.Role, Title: roleTitle(l.Role), Duty: cmp.Or(roleDescriptions[l.Role], "A role of your program"), Term: l.Term,
			Vacant: !l.Leads(), Idle: !l.Leads() && !hasCandidate(l.Role, facts.nodes),
		}
		switch {
		case !card.Vacant:
			lease := l.LeaseUntil.Sub(l.RenewedAt)
			card.Node = facts.colors.Node(l.NodeID)
			card.Mine = l.NodeID == self.NodeID
			card.URL = safeURL(l.APIURL)
			card.Since = format.NewStamp(format.ModeSince, facts.now, l.AcquiredAt)
			card.LeaseMS = lease.Milliseconds()
			card.Until = format.NewStamp(format.ModeLeft, facts.now, l.LeaseUntil).Moving(leaseOf(l.Role))
			card.Left = charts.Scale{Start: l.RenewedAt, Width: max(lease, 1)}.Between(facts.now, l.LeaseUntil)
		case l.LockHolder != nil:
			card.Holder = format.PlainText(l.LockHolder.String())
		case !l.LeaseUntil.IsZero() && l.NodeID != "":
			card.Since = format.NewStamp(format.ModeSince, facts.now, l.LeaseUntil)
		}
		cards = append(cards, card)
	}
	return cards
}

// rate adds how many renewals and heartbeats succeeded.
func (c *leaderCard) rate(now time.Time, rates aggregator.LeaderRates) {
	if rates.Renewals != nil {
		c.Renewals = rates.Renewals.String()
	}
	if rates.Heartbeats != nil {
		c.Heartbeats, c.Started = rates.Heartbeats.String(), format.NewStamp(format.ModeAgo, now, rates.Heartbeats.Since)
	}
}

// tenureRows returns the rows of the tenures, newest first. now is the end of tenures that
// continue.
func tenureRows(now time.Time, tenures []leaderstore.Tenure, leaders []leaderstore.Leader, colors charts.Palette) []tenureRow {
	rows := make([]tenureRow, 0, len(tenures))
	for _, t := range tenures {
		row := tenureRow{
			Role: t.Role, Node: colors.Node(t.NodeID), Term: t.Term,
			Acquired: format.NewStamp(format.ModeAgo, now, t.AcquiredAt), Gap: "–",
			Path: charts.TermPath(t.Role, t.Term),
		}
		if t.HasGap {
			row.Gap = format.Precise(t.Gap)
		}
		row.end(now, t, leaders)
		rows = append(rows, row)
	}
	return rows
}

func (r *tenureRow) end(now time.Time, t leaderstore.Tenure, leaders []leaderstore.Leader) {
	switch {
	case !t.EndedAt.IsZero():
		r.Lasted = format.Precise(t.EndedAt.Sub(t.AcquiredAt))
	case lasts(t, leaders):
		r.Since = format.NewStamp(format.ModeSince, now, t.AcquiredAt)
		r.Reason, r.Tone = "leading", "ok"
		return
	default:
		r.Lasted = "–"
	}
	r.Reason, r.Tone = "not recorded yet", "idle"
	if reason, ok := charts.Reasons[t.EndReason]; ok {
		r.Reason, r.Tone = reason.Words, reason.Tone
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
