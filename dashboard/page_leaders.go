package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/leaderstore"
)

// The limits of the leaders page.
const (
	longHistory   = 2000
	listedTenures = 50
	listedEvents  = 20
)

// keepRates is how long pages and the API share the rates of renewals and heartbeats. Nodes
// report new ones at each metrics.scrape_interval.
const keepRates = 10 * time.Second

// longSpans are the spans of this page. The overview has shorter ones too.
var longSpans = spans[2:]

// electionEvents are the event types about leadership.
var electionEvents = []string{
	eventstore.LeaderElected, eventstore.LeaderLost, eventstore.ElectionStarted, eventstore.HandOverAsked,
	eventstore.LeaderDrilled, eventstore.ClusterDegraded, eventstore.ClusterRecovered,
}

type leadersBody struct {
	base
	Notice    string
	Roles     []spanLink
	Spans     []spanLink
	Cards     []leaderCard
	Lanes     swimlane
	Failovers failovers
	History   []tenureRow
	// Hidden is how many tenures of the span are not listed.
	Hidden int
	Events []eventRow
}

func (s *pageServer) loadLeaders(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	role := req.values.Get("role")
	tenures, err := s.Source.Leadership.History(ctx, role, longHistory)
	if err != nil {
		return nil, fmt.Errorf("read the history of leaders: %w", err)
	}
	events, err := s.Source.Events.Find(ctx, eventstore.Filter{Types: electionEvents, Limit: listedEvents})
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	b := leadersBody{base: base{name: "Leadership", beat: s.fullPulse(facts)}, Notice: handOverNotice(req, facts)}
	b.Roles = roleLinks(facts.leaders, role, req.values.Get("span"))
	if role != "" {
		facts.leaders = slices.DeleteFunc(slices.Clone(facts.leaders), func(l leaderstore.Leader) bool { return l.Role != role })
	}
	b.draw(facts, newestFirst(tenures), req.values.Get("span"), role)
	rates, err := s.rates.get(ctx)
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

// draw fills in the history of the requested span.
func (b *leadersBody) draw(facts clusterFacts, tenures []leaderstore.Tenure, name, role string) {
	sp := longSpans[max(slices.IndexFunc(longSpans, func(s span) bool { return s.Name == name }), 0)]
	b.Spans = spanLinks(longSpans, sp, func(other string) string { return "/leaders?" + values("role", role, "span", other) })
	colors := newPalette(nodeIDs(facts.nodes, tenures))
	b.Lanes = drawSwimlane(facts.now, sp, facts.leaders, tenures, colors)
	b.Failovers = drawFailovers(facts.now, sp, tenures, colors)
	shown := slices.DeleteFunc(slices.Clone(tenures), func(t leaderstore.Tenure) bool {
		return !t.EndedAt.IsZero() && facts.now.Sub(t.EndedAt) > sp.Width
	})
	b.Hidden = max(len(shown)-listedTenures, 0)
	b.History = tenureRows(facts.now, shown[:len(shown)-b.Hidden], facts.leaders, colors)
}

func roleLinks(leaders []leaderstore.Leader, role, span string) []spanLink {
	links := []spanLink{{"All roles", "/leaders?" + values("span", span), role == ""}}
	for _, l := range leaders {
		links = append(links, spanLink{roleTitle(l.Role), "/leaders?" + values("role", l.Role, "span", span), l.Role == role})
	}
	return links
}

// addActs adds the buttons to the cards of leaders.
func (s *pageServer) addActs(req *request, cards []leaderCard, facts clusterFacts) []leaderCard {
	if s.RoleOps == nil || !req.may(admin) {
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
	At   stamp
	What string
	Role string
	Node nodeName
	Term int64
	More string
}

func eventRows(facts clusterFacts, events []eventstore.Event, role string) []eventRow {
	rows := make([]eventRow, 0, len(events))
	for _, e := range events {
		if role != "" && e.Role != role {
			continue
		}
		rows = append(rows, eventRow{
			ID: e.ID, At: newStamp(modeAgo, facts.now, e.At), What: strings.ReplaceAll(e.Type, "_", " "), Role: e.Role,
			Node: nodeName{e.NodeID, facts.colors.of(e.NodeID)}, Term: e.Term, More: eventWords(e.Data),
		})
	}
	return rows
}

// eventWords describes the facts of an event that matter to readers.
func eventWords(data json.RawMessage) string {
	var told struct {
		Reason, By, To string
		Causes         []string
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
	if told.To != "" {
		words = append(words, "to "+told.To)
	}
	if told.By != "" {
		words = append(words, "by "+told.By)
	}
	if told.GapMS != nil {
		words = append(words, "after "+millis(*told.GapMS)+" without a leader")
	}
	if told.AfterMS != nil {
		words = append(words, "after "+millis(*told.AfterMS))
	}
	return plainText(strings.Join(words, ", "))
}

// handOverNotice reports the request of the form that redirected to the page, and the
// current leader.
func handOverNotice(req *request, facts clusterFacts) string {
	role, to := req.values.Get("of"), req.values.Get("to")
	i := slices.IndexFunc(facts.leaders, func(l leaderstore.Leader) bool { return l.Role == role })
	if i < 0 {
		return ""
	}
	now := "It has no leader at the moment."
	if l := facts.leaders[i]; l.Leads() {
		now = fmt.Sprintf("%s leads it now, in term %d.", l.NodeID, l.Term)
	}
	switch req.values.Get("did") {
	case didStepDown:
		return "The leader of " + roleWords(role) + " was asked to step down. " + now
	case didTransfer:
		return "The leader of " + roleWords(role) + " was asked to hand over to " + to + ". " + now
	default:
		return ""
	}
}
