package pages

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/queues"
)

type queueBody struct {
	base
	charts.Drawing

	Queue    queueRow
	Notice   *notice
	Operates bool
	// Spans are for how long the queue can be paused, MostReason is the length of a reason.
	Spans      []spanChoice
	MostReason int
	// Unworked describes why no node takes jobs; empty if one does.
	Unworked string
	// Oldest is the address of the job that has waited longest; empty if none waits.
	Oldest string
	// Dead is the number of dead letters, DeadPath leads to them.
	Dead, DeadPath string
	Settings       []fact
	// Recent is what happened in the last minutes, of which RecentAbout is the time; empty
	// if it is not known.
	Recent      []fact
	RecentAbout string
	Kinds       []remark
	MoreKinds   bool
	Servers     []serverRow
	Jobs        []jobRow
	// Key is the key by which jobs take turns or are limited; empty if they are not.
	Key  string
	Keys []queueKeyRow
	// Search is the part of a value by which Keys were selected, KeyHeads the heads of the table.
	Search   string
	KeyHeads []head
	// Rates is whether the rows have what the queue's rate leaves.
	Rates     bool
	MoreKeys  bool
	Crons     []queueCronRow
	MoreCrons bool
	Pauses    []pauseRow
	// PausedJobs are the parts of the queue's jobs that are paused.
	PausedJobs []jobPauseRow
	Time       timeControl
}

// NodeCount returns how many nodes take jobs of the queue, in words.
func (b *queueBody) NodeCount() string { return format.Plural(b.Queue.Nodes, "node", "nodes") }

// serverRow is a node that works the queue.
type serverRow struct {
	Node  charts.Node
	State charts.Badge
	Slots int
	// Jobs leads to the node's running jobs of the queue.
	Jobs string
}

// jobPauseRow is a pause of a part of the queue's jobs.
type jobPauseRow struct {
	// ID is the number of the row. Jobs describes the jobs, Kind and Keyed select them.
	ID                int
	Jobs, Kind, Keyed string
	By, Reason        string
	At, Until         format.Stamp
	Ends              bool
}

// queueKeyRow is the use of a queue by the jobs with one value of its key.
type queueKeyRow struct {
	Value            string
	Running, Waiting int64
	MoreWaiting      bool
	Oldest           format.Stamp
	RateLeft         string
}

type queueCronRow struct {
	Name, Path, Job string
	Paused          bool
	Next            format.Stamp
}

type pauseRow struct {
	What, Jobs, By, Reason string
	At                     format.Stamp
}

// pauseSpans are the choices of the form.
var pauseSpans = append([]spanChoice{{"", "until it is resumed"}}, silenceSpans...)

func (s *Pages) loadQueue(ctx context.Context, req *request) (body, error) {
	name := req.Values.Get("name")
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	shown, err := s.window(req, facts.now, time.Hour)
	if err != nil {
		return nil, err
	}
	keys := cluster.KeysOf(&req.Query)
	if err := req.err(); err != nil {
		return nil, err
	}
	report, err := s.Queue(ctx, name, keys)
	if err != nil {
		return nil, err
	}
	jobs, err := s.Source.Jobs.List(ctx, jobstore.Filter{State: "running", Queue: name, Limit: shownRunning, Args: jobstore.ShortArgs})
	if err != nil {
		return nil, fmt.Errorf("read the running jobs of %s: %w", name, err)
	}
	drawn, err := s.chartPages.Get("queue="+name+"&"+web.Encode(shown.Pairs()...), facts.now, func() (charts.Drawing, error) {
		return charts.DrawQueue(ctx, s.Source.History, name, shown, facts.now)
	})
	if err != nil {
		return nil, err
	}
	b := newQueueBody(&report, facts)
	b.base, b.Drawing = base{name: "Queue " + name, beat: s.pulseOf(facts)}, drawn
	b.Notice, b.Operates = queueNotice(name, req), s.QueueOps != nil && req.may(route.Operator) && report.Known
	b.Jobs = jobRows(facts.now, jobs, facts.colors)
	b.Search, b.KeyHeads = keys.Text, keyHeads(name, keys, b.Rates)
	b.Time = s.timeControl(shown, facts.now, queuePath(name), "#h-load", charts.MetricSpans, nil)
	return b, nil
}

// shownRunning bounds the running jobs on the page.
const shownRunning = 10

func newQueueBody(r *queues.Report, facts clusterFacts) *queueBody {
	b := &queueBody{
		Queue: newQueueRow(r.Queue, facts.now), Spans: pauseSpans, MostReason: eventstore.MaxReason, Unworked: unworked(r), MoreKinds: r.MoreKinds, MoreCrons: r.MoreCrons,
		Dead: strconv.FormatInt(r.Dead, 10), DeadPath: "/dead?" + web.Encode("queue", r.Name), Settings: queueSettings(r),
	}
	if r.MoreDead {
		b.Dead += "+"
	}
	if r.OldestID != 0 {
		b.Oldest = jobPath(r.OldestID)
	}
	for _, kind := range r.Kinds {
		b.Kinds = append(b.Kinds, remark{kind, b.Queue.Jobs + "&" + web.Encode("kind", kind)})
	}
	for _, n := range r.ServedBy {
		row := serverRow{Node: facts.colors.Node(n.NodeID), Slots: n.Slots, Jobs: b.Queue.Jobs + "&" + web.Encode("state", "running", "node", n.NodeID)}
		row.State = charts.Badge{Words: n.State, Tone: "ok", Icon: "check"}
		if n.State != nodestore.Active {
			row.State.Tone, row.State.Icon = "warn", "pause"
		}
		b.Servers = append(b.Servers, row)
	}
	b.Recent, b.RecentAbout = recentFacts(r.Recent)
	b.Key, b.Keys, b.MoreKeys = r.Key, queueKeyRows(r.Keys, facts.now), r.MoreKeys
	b.Rates = r.RatedKeys()
	b.PausedJobs = jobPauseRows(r.PausedJobs, facts.now)
	b.Crons, b.Pauses = queueCronRows(r.Crons, facts.now), pauseRows(r.Pauses, facts.now)
	return b
}

// unworked describes a queue whose jobs no node takes.
func unworked(r *queues.Report) string {
	switch {
	case r.Worked():
		return ""
	case len(r.ServedBy) > 0:
		return "No node works this queue: every node that could is draining. Its jobs wait."
	case r.Configured != nil:
		return "No node works this queue: none runs that has it in its file. Its jobs wait."
	default:
		return "No node works this queue, and the configuration does not name it. Its jobs wait until [queues] of a node's file does."
	}
}

// queueSettings are the limits and the priority as configured.
func queueSettings(r *queues.Report) []fact {
	c := r.Configured
	if c == nil {
		return []fact{{"Configuration", "does not name this queue"}}
	}
	orElse := func(value int, otherwise string) string {
		if value == 0 {
			return otherwise
		}
		return strconv.Itoa(value)
	}
	facts := []fact{
		{"Jobs at once per node", orElse(c.MaxWorkers, "as many as it has slots")},
		{"Jobs at once in the cluster", orElse(c.GlobalLimit, "no limit")},
	}
	if c.Reserve > 0 {
		facts = append(facts, fact{"Slots reserved per node", strconv.Itoa(c.Reserve)})
	}
	if l := c.LimitPerKey; l != nil {
		facts = append(facts, fact{"Jobs at once for each " + l.Key, strconv.Itoa(l.Limit)})
	}
	if l := c.MaxWorkersPerKey; l != nil {
		facts = append(facts, fact{"Jobs at once per node for each " + l.Key, strconv.Itoa(l.Limit)})
	}
	if c.RateLimit != nil {
		facts = append(facts, fact{"Starts", c.RateLimit.String()})
		if r.RateLeft != nil {
			facts = append(facts, fact{"Units that may start now", strconv.Itoa(*r.RateLeft)})
		}
	}
	if c.FairBy != "" {
		turns := "by " + c.FairBy
		if !r.FairReady {
			turns += ", once the index is built"
		}
		facts = append(facts, fact{"Jobs take turns", turns})
	}
	return append(facts, fact{"Priority", strconv.Itoa(cmp.Or(c.Priority, 1)) + " unless a job has its own"})
}

// recentFacts are the rates and percentiles of the last minutes, and which minutes those are.
func recentFacts(r *aggregator.Work) (facts []fact, about string) {
	if r == nil {
		return nil, ""
	}
	spread := func(p aggregator.Percentiles) string {
		texts := percentiles(p)
		return strings.Join(texts[:], " / ")
	}
	return []fact{
		{"Started a minute", rate(r.Started)},
		{"Finished a minute", rate(r.Finished)},
		{"Failed a minute", rate(r.Failed)},
		{"Wait p50 / p95 / p99", spread(r.Wait)},
		{"Took p50 / p95 / p99", spread(r.Took)},
	}, workAbout(r)
}

// workAbout describes the time of the work of a queue or node.
func workAbout(r *aggregator.Work) string {
	all := format.Plural(r.Minutes(), "minute", "minutes") + " until " + format.UTC(r.To)
	if r.Unknown == 0 {
		return "In the " + all
	}
	return fmt.Sprintf("In %d of the %s. In the others, it was not among the %d with the most attempts, which are kept.", r.Minutes()-r.Unknown, all, aggregator.KeptKeys)
}

func rate(perMinute float64) string {
	if perMinute == 0 || perMinute >= 10 {
		return strconv.FormatFloat(perMinute, 'f', 0, 64)
	}
	return strconv.FormatFloat(perMinute, 'f', 1, 64)
}

func queueKeyRows(keys []jobstore.KeyUse, now time.Time) []queueKeyRow {
	rows := make([]queueKeyRow, len(keys))
	for i, k := range keys {
		rows[i] = queueKeyRow{Value: format.PlainText(k.Key), Running: k.Running, Waiting: k.Waiting, MoreWaiting: k.Waiting >= jobstore.CountLimit}
		if !k.OldestAt.IsZero() {
			rows[i].Oldest = format.NewStamp(format.ModeAgo, now, k.OldestAt)
		}
		if k.RateLeft != nil {
			rows[i].RateLeft = strconv.Itoa(*k.RateLeft)
		}
	}
	return rows
}

// keyHeads are the heads of the values of a queue's key.
func keyHeads(queue string, of jobstore.KeySearch, rates bool) []head {
	columns := []head{{Text: "Value"}, {Text: "Running", Class: "num"}, {Text: "Waiting", Class: "num"}, {Text: "Oldest waits since"}}
	if rates {
		columns = append(columns, head{Text: "May start now", Class: "num"})
	}
	return heads(columns, map[string]sortBy{
		"Running": {"running", "descending", "The most running jobs first"}, "Waiting": {"waiting", "descending", "The most waiting jobs first"},
		"Oldest waits since": {"oldest", "ascending", "The longest wait first"},
	}, cmp.Or(of.Sort, jobstore.KeySorts[0]), func(sort string) string {
		return queuePath(queue) + "?" + web.Encode("search", of.Text, "sort", sort) + "#h-queue-keys"
	})
}

func queueCronRows(crons []cronstore.QueueCron, now time.Time) []queueCronRow {
	rows := make([]queueCronRow, 0, len(crons))
	for _, c := range crons {
		row := queueCronRow{Name: c.Name, Path: CronPath(c.Name), Job: c.Job, Paused: c.Paused}
		if !c.Paused && !c.NextTick.IsZero() {
			row.Next = format.NewStamp(format.ModeUntil, now, c.NextTick)
		}
		rows = append(rows, row)
	}
	return rows
}

func jobPauseRows(pauses []jobstore.JobPause, now time.Time) []jobPauseRow {
	rows := make([]jobPauseRow, len(pauses))
	for i, p := range pauses {
		rows[i] = jobPauseRow{
			ID: i, Jobs: format.PlainText(p.String()), Kind: p.Kind, Keyed: p.Keyed(), By: format.PlainText(p.PausedBy), Reason: p.PauseReason,
			At: format.NewStamp(format.ModeAgo, now, p.PausedAt),
		}
		if rows[i].Ends = !p.PausedUntil.IsZero(); rows[i].Ends {
			rows[i].Until = format.NewStamp(format.ModeUntil, now, p.PausedUntil)
		}
	}
	return rows
}

func pauseRows(changes []eventstore.QueueChange, now time.Time) []pauseRow {
	rows := make([]pauseRow, 0, len(changes))
	for _, c := range changes {
		row := pauseRow{What: "resumed", Jobs: format.PlainText(c.Jobs), By: format.PlainText(c.By), Reason: c.Reason, At: format.NewStamp(format.ModeAgo, now, c.At)}
		if c.Paused() {
			row.What = "paused"
		}
		rows = append(rows, row)
	}
	return rows
}
