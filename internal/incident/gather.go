package incident

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Bounds of a report.
const (
	listedTicks  = 100
	listedEvents = 100
	listedJobs   = 100
	// lookBack is how long before the end of the old term its ticks may have been left
	// unrecorded, lookAhead how long after the election ticks may be delayed.
	lookBack, lookAhead = 30 * time.Second, time.Minute
	// eventsBefore and eventsAfter are the time around the end and the beginning whose events
	// are listed.
	eventsBefore, eventsAfter = 5 * time.Second, 15 * time.Second
	// factsBefore and factsAfter are the time in which events about the change are found, such
	// as the request before it and the rescue after it.
	factsBefore, factsAfter = 5 * time.Minute, 2 * time.Minute
	factEvents              = 500
)

// scheduler is the role whose leader records ticks.
const scheduler = "scheduler"

// Reader makes reports from the rows of one database.
type Reader struct {
	db postgres.DB
	// ledger is how long ticks are kept.
	ledger time.Duration
}

// New returns the reader of a database whose ledger keeps ticks for some time.
func New(db postgres.DB, ledger time.Duration) *Reader { return &Reader{db, ledger} }

// Read reports on a term of a role. Term 0 means the newest one or, if the role has no leader,
// the time since then. It returns ErrNotFound if the history does not have the term.
func (r *Reader) Read(ctx context.Context, role string, term int64) (Incident, error) {
	i, err := r.tenures(ctx, role, term)
	if err != nil {
		return i, err
	}
	if err := r.addEvents(ctx, &i); err != nil {
		return i, err
	}
	if err := r.addProcess(ctx, &i); err != nil {
		return i, err
	}
	if i.Old != nil && role == scheduler {
		if err := r.addTicks(ctx, &i); err != nil {
			return i, err
		}
	}
	i.judge()
	i.Summary = i.summarize()
	return i, nil
}

// tenures begins a report with the term and the tenure before it.
func (r *Reader) tenures(ctx context.Context, role string, term int64) (Incident, error) {
	i := Incident{Role: role, Events: []eventstore.Event{}, Jobs: Jobs{IDs: []int64{}}}
	leaders := leaderstore.New(r.db)
	leader, known, err := leaders.Leader(ctx, role)
	if err != nil {
		return i, err
	}
	if i.Now = leader.Now; !known {
		if i.Now, err = postgres.Now(ctx, r.db); err != nil {
			return i, err
		}
	}
	if vacant := known && leader.Term > 0 && !leader.Leads(); vacant && (term == 0 || term == leader.Term+1) {
		term = leader.Term + 1
	}
	around, err := leaders.Around(ctx, role, term)
	if err != nil {
		return i, err
	}
	if term == 0 && len(around) > 0 {
		term = around[len(around)-1].Term
	}
	i.Term = term
	at := slices.IndexFunc(around, func(t leaderstore.Tenure) bool { return t.Term == term })
	switch {
	case at >= 0:
		i.begun(around, at)
	case known && len(around) > 0 && term == leader.Term+1 && !leader.Leads():
		i.vacant(around[len(around)-1], leader)
	default:
		return i, fmt.Errorf("term %d of %s: %w", term, role, ErrNotFound)
	}
	return i, nil
}

// begun fills in a term that has begun: the tenure at an index.
func (i *Incident) begun(around []leaderstore.Tenure, at int) {
	t := around[at]
	i.NodeID, i.Incarnation, i.ElectedAt, i.EndedAt, i.EndReason = t.NodeID, t.Incarnation, t.AcquiredAt, t.EndedAt, t.EndReason
	if at+1 < len(around) {
		i.NextTerm = around[at+1].Term
	}
	if i.Kind = FirstTerm; at == 0 {
		return
	}
	old := around[at-1]
	i.setOld(old)
	if i.Kind = Failover; planned(old.EndReason) {
		i.Kind = HandOver
	}
	if t.HasGap {
		i.setGap(t.Gap)
	}
	if i.Old.EndedAt.IsZero() {
		i.Old.EndedAt = t.AcquiredAt.Add(-t.Gap)
	}
}

// vacant fills in the time without a leader since the newest tenure.
func (i *Incident) vacant(newest leaderstore.Tenure, leader leaderstore.Leader) {
	i.Kind = NoLeader
	i.setOld(newest)
	if i.Old.EndedAt.IsZero() {
		i.Old.EndedAt = newest.AcquiredAt
		if leader.RenewedAt.After(newest.AcquiredAt) {
			i.Old.EndedAt = leader.RenewedAt
		}
	}
	i.setGap(i.Now.Sub(i.Old.EndedAt))
}

func (i *Incident) setOld(t leaderstore.Tenure) {
	i.Old = &OldLeader{
		Term: t.Term, NodeID: t.NodeID, Incarnation: t.Incarnation, AcquiredAt: t.AcquiredAt,
		EndedAt: t.EndedAt, EndReason: t.EndReason, Drill: t.Drill, Process: "unknown",
	}
}

func (i *Incident) setGap(gap time.Duration) {
	ms := float64(gap.Microseconds()) / 1000
	i.GapMS = &ms
}

// edges returns the end of the old term and the beginning of the new one, or now.
func (i *Incident) edges() (ended, began time.Time) {
	if began = i.ElectedAt; began.IsZero() {
		began = i.Now
	}
	if ended = began; i.Old != nil {
		ended = i.Old.EndedAt
	}
	return ended, began
}

// addEvents adds the events around both edges, and what they tell.
func (r *Reader) addEvents(ctx context.Context, i *Incident) error {
	ended, began := i.edges()
	among := eventstore.Among{Types: factTypes, Role: i.Role, Limit: factEvents}
	if i.Old != nil {
		among.NodeID = i.Old.NodeID
	}
	facts, err := r.around(ctx, ended, began, factsBefore, factsAfter, among)
	if err != nil {
		return err
	}
	i.EventsKept = i.Kind == NoLeader
	for _, e := range facts {
		i.tell(e)
	}
	events, err := r.around(ctx, ended, began, eventsBefore, eventsAfter, eventstore.Among{Limit: listedEvents})
	i.Events = append(i.Events, events...)
	return err
}

// around returns events around two instants, oldest first.
func (r *Reader) around(ctx context.Context, ended, began time.Time, before, after time.Duration, among eventstore.Among) ([]eventstore.Event, error) {
	events := eventstore.New(r.db)
	if ended.Add(after).After(began.Add(-before)) {
		return events.Between(ctx, ended.Add(-before), began.Add(after), among)
	}
	first, err := events.Between(ctx, ended.Add(-before), ended.Add(after), among)
	if err != nil {
		return nil, err
	}
	last, err := events.Between(ctx, began.Add(-before), began.Add(after), among)
	return append(first, last...), err
}

// factTypes are the types of events that tell something about a change of leader.
var factTypes = []string{
	eventstore.LeaderLost, eventstore.ElectionStarted, eventstore.LeaderElected, eventstore.HandOverAsked,
	eventstore.NodeDead, eventstore.NodeLeft, eventstore.JobsRescued,
}

// tell fills in what one event tells.
func (i *Incident) tell(e eventstore.Event) {
	switch {
	case e.Type == eventstore.ElectionStarted && e.Role == i.Role && e.Term == i.Term:
		i.ElectionAt = e.At
	case e.Type == eventstore.LeaderElected && e.Role == i.Role && e.Term == i.Term:
		i.EventsKept = true
	case i.Old == nil:
	case e.Type == eventstore.LeaderLost && e.Role == i.Role && e.Term == i.Old.Term:
		i.DetectedAt = later(e.At, i.Old.EndedAt) // an end in order is recorded before the event
	case e.Type == eventstore.HandOverAsked && e.Role == i.Role && e.Term == i.Old.Term:
		i.Old.asked(e)
	case e.NodeID == i.Old.NodeID:
		i.tellOfNode(e)
	}
}

func (o *OldLeader) asked(e eventstore.Event) {
	var data struct{ By, To string }
	if json.Unmarshal(e.Data, &data) == nil {
		o.AskedBy, o.AskedFor, o.AskedAt = data.By, data.To, e.At
	}
}

// tellOfNode fills in what an event tells about the old leader's process.
func (i *Incident) tellOfNode(e eventstore.Event) {
	var data eventstore.Rescued
	onRequest := i.Old.EndReason == "stepped_down" || i.Old.EndReason == "transferred"
	if json.Unmarshal(e.Data, &data) != nil || data.Incarnation != i.Old.Incarnation || onRequest {
		return
	}
	switch e.Type {
	case eventstore.NodeDead:
		i.Old.Process, i.Old.GoneAt = nodestore.Dead, e.At
	case eventstore.NodeLeft:
		i.Old.Process, i.Old.GoneAt = nodestore.Left, e.At
	case eventstore.JobsRescued:
		i.Jobs.Rescued += data.Jobs
		i.Jobs.Available += data.Available
		i.Jobs.Cancelled += data.Cancelled
		i.Jobs.Discarded += data.Discarded
		i.Jobs.RescuedAt = e.At
		i.Jobs.IDs = append(i.Jobs.IDs, data.IDs[:min(len(data.IDs), listedJobs-len(i.Jobs.IDs))]...)
	}
}

// addProcess adds what has become of the old leader's process, and the jobs that it left.
func (r *Reader) addProcess(ctx context.Context, i *Incident) error {
	if i.Old == nil {
		return nil
	}
	node, err := nodestore.New(r.db).Get(ctx, i.Old.NodeID)
	switch {
	case errors.Is(err, nodestore.ErrNotFound):
		return nil
	case err != nil:
		return err
	case node.Incarnation == i.Old.Incarnation && node.Present():
		i.Old.Process = node.State
		return nil
	case !i.Old.GoneAt.IsZero():
	case node.Incarnation == i.Old.Incarnation:
		i.Old.Process = node.State
	default:
		i.Old.Process = "replaced"
	}
	i.Jobs.Orphaned, err = jobstore.New(r.db).CountOrphans(ctx, nodestore.ClientID(i.Old.NodeID, i.Old.Incarnation))
	return err
}

// addTicks adds what the change did to the ticks.
func (r *Reader) addTicks(ctx context.Context, i *Incident) error {
	ended, began := i.edges()
	after, until := ended.Add(-lookBack), began.Add(lookAhead)
	if i.Now.Sub(after) > r.ledger {
		i.Lost.Unchecked = "The ticks of that time are past retention.cron_ticks."
		return nil
	}
	crons := cronstore.New(r.db)
	if i.Kind != NoLeader {
		end := until.Add(24 * time.Hour)
		if !i.EndedAt.IsZero() {
			end = earlier(end, i.EndedAt)
		}
		first, found, err := crons.FirstFired(ctx, i.Term, after, end)
		if err != nil {
			return err
		}
		if found {
			i.FirstTick = &first
		}
		ticks, err := crons.GapTicks(ctx, cronstore.Gap{Term: i.Term, After: after, Until: until, Elected: began}, listedTicks)
		if err != nil {
			return err
		}
		i.Ticks = &ticks
	}
	unrecorded, err := crons.Unrecorded(ctx, cronstore.Stretch{After: after, Until: began})
	i.Lost.Ticks = &unrecorded
	return err
}

// judge decides whether anything was lost.
func (i *Incident) judge() {
	ticks := i.Lost.Ticks
	switch {
	case i.Lost.Unchecked != "":
	case !i.EventsKept:
		i.Lost.Unchecked = "The events of that time are past retention.events."
	case ticks != nil && ticks.More:
		i.Lost.Unchecked = fmt.Sprintf("Only %d crons were checked.", ticks.Crons)
	case ticks != nil && ticks.Changed > 0:
		i.Lost.Unchecked = fmt.Sprintf("Crons whose definition has changed since were not checked: %d.", ticks.Changed)
	}
	i.Lost.Nothing = i.Lost.Unchecked == "" && i.Jobs.Orphaned == 0 && (ticks == nil || ticks.LostCount+ticks.WaitingCount == 0)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
