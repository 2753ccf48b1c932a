package pages

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/incident"
	"github.com/forge-scheduler/forge/leaderstore"
)

type incidentBody struct {
	base
	Role, Title string
	Term        int64
	Kind        charts.Badge
	Summary     string
	// Changes leads to what happened before an unplanned end.
	Changes string
	Drawing charts.IncidentDrawing
	Tiles   []tile
	Facts   []fact
	Ticks   []delayedRow
	// MoreTicks is how many delayed ticks are not listed.
	MoreTicks string
	// Scheduler reports that the role fires ticks, TicksKept that the ledger still has them.
	Scheduler, TicksKept bool
	// Vacant reports that the role has no leader now.
	Vacant   bool
	Jobs     []jobLink
	MoreJobs int
	// Unrecorded are due ticks without a row in the ledger.
	Unrecorded     []delayedRow
	MoreUnrecorded int
	Loss           string
	Events         []incidentEvent
	EventsKept     bool
	// Before and After are the addresses of the terms before and after.
	Before, After string
}

// delayedRow is a tick that was late, or is not recorded.
type delayedRow struct {
	Cron, Path    string
	TickPath      string
	Due, Recorded format.Moment
	Late          string
	Verdict       charts.TickMark
	Count         int64
	Job           int64
	JobPath       string
}

type jobLink struct {
	ID   int64
	Path string
}

type incidentEvent struct {
	eventRow
	Moment format.Moment
}

// incidentKinds are the badges of the kinds.
var incidentKinds = map[string]charts.Badge{
	incident.FirstTerm: {Words: "first term", Tone: "idle", Icon: "dot"},
	incident.HandOver:  {Words: "hand-over", Tone: "idle", Icon: "retry"},
	incident.Failover:  {Words: "failover", Tone: "warn", Icon: "warn"},
	incident.NoLeader:  {Words: "no leader", Tone: "bad", Icon: "cross"},
}

func (s *Pages) loadIncident(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	role := req.Values.Get("role")
	term, err := cluster.ParseTerm(req.Values.Get("term"))
	if err != nil {
		return nil, err
	}
	i, err := s.Incidents.Get(ctx, role, term)
	if err != nil {
		return nil, fmt.Errorf("read an incident: %w", err)
	}
	b := &incidentBody{
		base: base{name: fmt.Sprintf("%s, term %d", roleTitle(i.Role), i.Term), beat: s.pulseOf(facts)},
		Role: i.Role, Title: roleTitle(i.Role), Term: i.Term, Kind: incidentKinds[i.Kind], Summary: i.Summary,
		Drawing: charts.DrawIncident(&i, facts.colors), Facts: incidentFacts(&i),
		Scheduler: i.Role == cluster.SchedulerRole, TicksKept: i.Ticks != nil, Vacant: i.Kind == incident.NoLeader, EventsKept: i.EventsKept, Loss: i.Loss(),
	}
	if i.Old != nil {
		b.Before = charts.TermPath(i.Role, i.Old.Term)
		b.Tiles = incidentTiles(&i)
		if i.Kind != incident.HandOver {
			b.Changes = changesBefore(i.Old.EndedAt)
		}
	}
	if i.NextTerm > 0 {
		b.After = charts.TermPath(i.Role, i.NextTerm)
	}
	b.addTicks(&i)
	b.addJobs(&i)
	for _, row := range eventRows(facts, i.Events, "") {
		b.Events = append(b.Events, incidentEvent{eventRow: row})
	}
	for n, e := range i.Events {
		b.Events[n].Moment = format.NewMoment(e.At)
	}
	return b, nil
}

func (b *incidentBody) addTicks(i *incident.Incident) {
	if i.Ticks != nil {
		listed := int64(0)
		for _, t := range i.Ticks.Items {
			b.Ticks = append(b.Ticks, newDelayedRow(t))
			listed += t.Count
		}
		switch {
		case i.Ticks.More:
			b.MoreTicks = "More ticks were delayed than are counted here."
		case i.Ticks.Count > listed:
			b.MoreTicks = format.Plural(int(i.Ticks.Count-listed), "tick was", "ticks were") + " delayed by less."
		}
	}
	if ticks := i.Lost.Ticks; ticks != nil {
		for _, t := range slices.Concat(ticks.Lost, ticks.Waiting) {
			b.Unrecorded = append(b.Unrecorded, delayedRow{Cron: t.Cron, Path: CronPath(t.Cron), Due: format.NewMoment(t.Tick)})
		}
		b.MoreUnrecorded = ticks.LostCount + ticks.WaitingCount - len(b.Unrecorded)
	}
}

func newDelayedRow(t cronstore.Tick) delayedRow {
	row := delayedRow{
		Cron: t.Cron, Path: CronPath(t.Cron), TickPath: tickPath(t.Cron, t.Tick), Due: format.NewMoment(t.Tick), Recorded: format.NewMoment(t.RecordedAt),
		Late: format.Millis(t.LatenessMS), Verdict: charts.MarkOf(t.Verdict), Count: t.Count, Job: t.JobID,
	}
	if t.JobID != 0 {
		row.JobPath = jobPath(t.JobID)
	}
	return row
}

func (b *incidentBody) addJobs(i *incident.Incident) {
	for _, id := range i.Jobs.IDs {
		b.Jobs = append(b.Jobs, jobLink{id, jobPath(id)})
	}
	b.MoreJobs = max(i.Jobs.Rescued-len(i.Jobs.IDs), 0)
}

// incidentTiles returns the cost in numbers.
func incidentTiles(i *incident.Incident) []tile {
	gap := tile{Name: "Without a leader", Value: format.Precise(i.Gap()), Path: "#timeline", Notes: []remark{{Text: "from the old leader's end"}}}
	if i.Kind == incident.NoLeader {
		gap.Tone, gap.Notes = "bad", []remark{{Text: "until now"}}
	}
	tiles := []tile{gap}
	if i.Ticks != nil {
		ticks := tile{Name: "Delayed ticks", Value: format.Number(i.Ticks.Count), Path: "#ticks"}
		if i.Ticks.Count > 0 {
			ticks.Notes = []remark{{Text: "the worst by " + format.Millis(i.Ticks.WorstMS)}}
		}
		tiles = append(tiles, ticks)
	}
	jobs := tile{Name: "Rescued jobs", Value: format.Number(int64(i.Jobs.Rescued)), Path: "#jobs"}
	if !i.EventsKept {
		jobs.Value = "unknown"
	}
	for _, part := range []struct {
		jobs  int
		words string
	}{{i.Jobs.Available, "available again"}, {i.Jobs.Cancelled, "cancelled"}, {i.Jobs.Discarded, "discarded"}} {
		if part.jobs > 0 {
			jobs.Notes = append(jobs.Notes, remark{Text: fmt.Sprintf("%d %s", part.jobs, part.words)})
		}
	}
	return append(tiles, jobs, lostTile(i))
}

func lostTile(i *incident.Incident) tile {
	t := tile{Name: "Lost", Value: "nothing", Path: "#lost"}
	lost, waiting := 0, 0
	if i.Lost.Ticks != nil {
		lost, waiting = i.Lost.Ticks.LostCount, i.Lost.Ticks.WaitingCount
	}
	switch {
	case lost > 0:
		t.Value, t.Tone, t.Notes = format.Number(int64(lost)), "bad", []remark{{Text: "ticks without a row in the ledger"}}
	case i.Jobs.Orphaned > 0:
		t.Value, t.Tone, t.Notes = format.Number(int64(i.Jobs.Orphaned)), "warn", []remark{{Text: "jobs are still orphaned"}}
	case waiting > 0:
		t.Value, t.Tone, t.Notes = format.Number(int64(waiting)), "warn", []remark{{Text: "ticks are not recorded yet"}}
	case !i.Lost.Nothing:
		t.Value, t.Notes = "none known", []remark{{Text: "not everything could be checked"}}
	case i.Lost.Ticks != nil && i.Lost.Ticks.Ticks == 0:
		t.Notes = []remark{{Text: "no tick was due"}}
	case i.Lost.Ticks != nil:
		t.Notes = []remark{{Text: fmt.Sprintf("%s checked", format.Plural(i.Lost.Ticks.Ticks, "due tick", "due ticks"))}}
	}
	return t
}

// incidentFacts returns who led before and after.
func incidentFacts(i *incident.Incident) []fact {
	var facts []fact
	if old := i.Old; old != nil {
		reason := charts.Reasons[old.EndReason].Words
		if old.Drill {
			reason += " (drill)"
		}
		facts = append(facts,
			fact{"Old leader", fmt.Sprintf("%s, term %d", old.NodeID, old.Term)},
			fact{"End reason", reason},
			fact{"Its process", incidentProcess(old)},
			fact{"Had led for", format.Coarse(old.EndedAt.Sub(old.AcquiredAt))})
		if old.AskedFor != "" {
			facts = append(facts, fact{"Requested leader", old.AskedFor})
		}
	}
	if i.NodeID != "" {
		facts = append(facts, fact{"New leader", fmt.Sprintf("%s, term %d", i.NodeID, i.Term)})
	}
	if !i.EndedAt.IsZero() {
		facts = append(facts, fact{"Led for", format.Coarse(i.EndedAt.Sub(i.ElectedAt))},
			fact{"Its end", charts.Reasons[i.EndReason].Words})
	}
	if i.Ticks != nil && len(i.Ticks.Verdicts) > 0 {
		var verdicts []string
		for _, v := range slices.Sorted(maps.Keys(i.Ticks.Verdicts)) {
			verdicts = append(verdicts, fmt.Sprintf("%d %s", i.Ticks.Verdicts[v], charts.MarkOf(v).Words))
		}
		facts = append(facts, fact{"Delayed ticks", strings.Join(verdicts, ", ")})
	}
	return withoutEmpty(facts)
}

// incidentProcess describes what has become of the old leader's process.
func incidentProcess(old *incident.OldLeader) string {
	switch old.Process {
	case "replaced":
		return "another process has its node id"
	case "unknown":
		return "no node of the cluster"
	case "dead", "left":
		return old.Process
	default:
		return "still " + old.Process
	}
}

// failoverLink links to the report on a failover.
type failoverLink struct {
	Role, Path string
	At         format.Stamp
}

// lastFailover returns the last change of leader that was not planned. It expects tenures newest
// first.
func lastFailover(now time.Time, tenures []leaderstore.Tenure) *failoverLink {
	for i, t := range tenures {
		before := slices.IndexFunc(tenures[i+1:], func(o leaderstore.Tenure) bool { return o.Role == t.Role })
		if before >= 0 && incident.Unplanned(tenures[i+1+before].EndReason) {
			return &failoverLink{t.Role, charts.TermPath(t.Role, t.Term), format.NewStamp(format.ModeAgo, now, t.AcquiredAt)}
		}
	}
	return nil
}

// conditionRole finds the role that a condition is about.
var conditionRole = regexp.MustCompile(`\brole=["']([^"']+)["']`)

// alertRolePath returns the address of the newest change of leader of the role that an alert is
// about, by its labels or its condition; empty if it is about no role of the cluster.
func alertRolePath(facts clusterFacts, labels map[string]string, condition string) string {
	role := labels["role"]
	if found := conditionRole.FindStringSubmatch(condition); role == "" && found != nil {
		role = found[1]
	}
	if !slices.ContainsFunc(facts.leaders, func(l leaderstore.Leader) bool { return l.Role == role && l.Term > 0 }) {
		return ""
	}
	return rolePath(role) + "/terms/latest"
}

// eventPath returns the address of the incident of an event about a term; empty for others.
func eventPath(kind, role string, term int64) string {
	if role == "" || term == 0 {
		return ""
	}
	switch kind {
	case eventstore.LeaderElected, eventstore.ElectionStarted:
		return charts.TermPath(role, term)
	case eventstore.LeaderLost, eventstore.LeaderDrilled, eventstore.HandOverAsked:
		return charts.TermPath(role, term+1)
	default:
		return ""
	}
}
