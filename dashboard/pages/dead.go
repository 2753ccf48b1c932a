package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// deadGroups is how many groups the page lists.
const deadGroups = 200

type deadBody struct {
	base
	Bar      bar
	Heads    []head
	Notice   string
	Operates bool
	// Acts are the buttons for actions on all that match the filter.
	Acts   []act
	Groups []deadGroupRow
	Hidden int
}

type deadGroupRow struct {
	Group, Path string
	Kind        string
	Jobs        int64
	First, Last format.Stamp
	Again       format.Stamp
	Error       string
}

func (s *Pages) loadDead(ctx context.Context, req *request) (body, error) {
	said, where, sort := deadNotice(req), pageWhere(req, jobstore.DeadKeys, deadFields), cluster.SortOf(&req.Query, jobstore.DeadOrders.Names())
	if err := req.err(); err != nil {
		return nil, err
	}
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	groups, err := s.deadGroups(ctx, where)
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	b := deadBody{Bar: deadBar("/dead", where, facts), base: base{name: "Dead letters", beat: s.pulseOf(facts)}, Notice: said, Operates: s.DeadLetterOps != nil && req.may(route.Operator)}
	groups = jobstore.DeadOrders.Sort(sort, groups)
	b.Bar.keep("sort", sort)
	b.Heads = heads([]head{{Text: "Kind"}, {Text: "Error"}, {Text: "Jobs", Class: "num"}, {Text: "First", Class: "num"}, {Text: "Last", Class: "num"}, {Text: "Second round", Class: "num"}},
		map[string]sortBy{"Kind": {"kind", "ascending", "By kind"}, "Jobs": {"jobs", "descending", "Most jobs first"}, "First": {"oldest", "ascending", "Oldest first"}, "Last": {"newest", "descending", "Newest first"}},
		cmp.Or(sort, jobstore.DeadOrders[0].Name), func(sort string) string { return "/dead?" + web.Encode("filter", where.String(), "sort", sort) })
	if b.Operates && where != nil {
		b.Acts = deadActs("", where, allOf(jobsOf(groups)))
	}
	shown := groups[:min(len(groups), deadGroups)]
	for _, g := range shown {
		b.Groups = append(b.Groups, newDeadGroupRow(facts.now, g))
	}
	b.Hidden = len(groups) - len(shown)
	return &b, nil
}

// jobsOf returns how many dead letters are in groups.
func jobsOf(groups []jobstore.DeadGroup) (jobs int64) {
	for _, g := range groups {
		jobs += g.Jobs
	}
	return jobs
}

// deadGroups returns the groups of the dead letters that match a filter.
func (s *Pages) deadGroups(ctx context.Context, where *filter.Filter) ([]jobstore.DeadGroup, error) {
	if where == nil {
		return s.Dead.Get(ctx)
	}
	return s.Source.Dead.DeadGroups(ctx, jobstore.DeadFilter{Where: where})
}

// deadBar returns the filter bar of a list of dead letters.
func deadBar(path string, where *filter.Filter, facts clusterFacts) bar {
	return newBar(path, where.String(), jobstore.DeadKeys, deadFields,
		map[string][]string{"kind": kindsOf(facts.nodes), "queue": queuesOf(facts.nodes, nil), "node": nodesOf(facts.nodes)})
}

func newDeadGroupRow(now time.Time, g jobstore.DeadGroup) deadGroupRow {
	return deadGroupRow{
		Group: g.Group, Path: deadPath(g.Group), Kind: g.Kind, Jobs: g.Jobs,
		First: format.NewStamp(format.ModeAgo, now, g.First), Last: format.NewStamp(format.ModeAgo, now, g.Last), Again: format.NewStamp(format.ModeUntil, now, g.SecondRound),
		Error: format.PlainText(g.Error),
	}
}

// deadNotice reports the result of the form that redirected to the page.
func deadNotice(req *request) string {
	n := int(req.Number("n"))
	switch req.Values.Get("did") {
	case string(jobstore.Retry):
		return format.Plural(n, "job is", "jobs are") + " available again."
	case string(jobstore.Discard):
		return format.Plural(n, "dead letter", "dead letters") + " discarded."
	default:
		return ""
	}
}

// deadGroupBody is one group with its jobs.
type deadGroupBody struct {
	base
	Bar    bar
	Notice string
	Group  deadGroupRow
	// Acts are the buttons for actions on all that match the filter, Picks for those on the
	// selected ones.
	Acts, Picks []act
	Operates    bool
	Letters     []deadLetterRow
	Older       string
}

type deadLetterRow struct {
	ID       int64
	Path     string
	Cron     string
	CronPath string
	Node     charts.Node
	Attempts int
	Died     format.Stamp
	Again    format.Stamp
	Error    string
	Lost     []string // how each node on which an attempt was lost failed
}

func (s *Pages) loadDeadGroup(ctx context.Context, req *request) (body, error) {
	before, said, where := req.Number("before"), deadNotice(req), pageWhere(req, jobstore.DeadKeys, deadFields)
	if err := req.err(); err != nil {
		return nil, err
	}
	facts, group, err := s.deadGroup(ctx, req.Values.Get("group"))
	if err != nil {
		return nil, err
	}
	letters, err := s.Source.Dead.DeadLetters(ctx, jobstore.DeadFilter{Group: group.Group, Where: where}, before, web.DefaultLimit)
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	b := deadGroupBody{
		base:   base{name: "Dead letters of " + group.Kind, beat: s.pulseOf(facts), past: before != 0},
		Bar:    deadBar(deadPath(group.Group), where, facts),
		Notice: said, Group: newDeadGroupRow(facts.now, group), Operates: s.DeadLetterOps != nil && req.may(route.Operator),
	}
	if b.Operates {
		b.Picks = picks("/bulk/dead/", cluster.DeadActions)
	}
	b.Bar.Keep = append(b.Bar.Keep, fact{"group", group.Group}) // for the form of the selected ones
	if b.Operates && where != nil {
		b.Acts = deadActs(group.Group, where, "all that match")
	}
	for _, l := range letters {
		b.Letters = append(b.Letters, deadLetterRow{
			ID: l.ID, Path: jobPath(l.ID), Cron: l.Cron, CronPath: CronPath(l.Cron), Node: facts.colors.Node(l.NodeID),
			Attempts: l.Attempt, Died: format.NewStamp(format.ModeAgo, facts.now, l.DiedAt), Again: format.NewStamp(format.ModeUntil, facts.now, l.SecondRound), Error: format.PlainText(l.Error),
			Lost: lostNodes(l),
		})
	}
	if len(letters) == web.DefaultLimit {
		b.Older = b.Group.Path + "?" + web.Encode("filter", where.String(), "before", strconv.FormatInt(letters[len(letters)-1].ID, 10))
	}
	return &b, nil
}

// lostNodes returns where each lost attempt ran, and how its node failed.
func lostNodes(l jobstore.DeadLetter) []string {
	lines := make([]string, len(l.Lost))
	for i, lost := range l.Lost {
		lines[i] = format.PlainText(fmt.Sprintf("attempt %d on %s: %s", lost.Attempt, lost.NodeID, lost.Error))
	}
	return lines
}

func (s *Pages) deadGroup(ctx context.Context, name string) (facts clusterFacts, group jobstore.DeadGroup, err error) {
	if facts, err = s.cluster(ctx); err != nil {
		return facts, group, err
	}
	groups, err := s.Source.Dead.DeadGroups(ctx, jobstore.DeadFilter{Group: name})
	if err != nil {
		return facts, group, fmt.Errorf("read dead letters: %w", err)
	}
	if len(groups) == 0 {
		return facts, group, cluster.ErrNoSuchGroup
	}
	return facts, groups[0], nil
}

// deadActBody is the confirmation page of an action.
type deadActBody struct {
	base
	Group               deadGroupRow
	Action, Title, Icon string
	What                string
	// ID is the dead letter that the action is for; 0: all of the group.
	ID int64
	// Jobs is the number of dead letters that the action is for, Error that of the last.
	Jobs  int64
	Error string
	// UpTo is the highest id that was counted, AsOf the time of the count.
	UpTo int64
	AsOf string
}

// deadEffects describe what an action does to many dead letters, or to one.
var deadEffects = map[jobstore.Action]struct{ many, one string }{
	jobstore.Retry: {"They run once more, from the beginning. What their earlier attempts have done remains.", "It runs once more, from the beginning. What its earlier attempts have done remains."},
	jobstore.Discard: {
		"They are removed from the list and not retried. The jobs remain until their retention is over.",
		"It is removed from the list and not retried. The job remains until its retention is over, and can be retried from its page.",
	},
}

// loadDeadAct loads the confirmation page of an action on a group, or on one dead letter of
// it.
func loadDeadAct(action jobstore.Action) func(*Pages, context.Context, *request) (body, error) {
	return func(s *Pages, ctx context.Context, req *request) (body, error) {
		facts, group, err := s.deadGroup(ctx, req.Values.Get("group"))
		if err != nil {
			return nil, err
		}
		b := &deadActBody{
			base:  base{name: title(action) + " dead letters of " + group.Kind, beat: s.pulseOf(facts)},
			Group: newDeadGroupRow(facts.now, group), Action: string(action), Title: title(action), Icon: Icons[action], What: deadEffects[action].many,
			Error: format.PlainText(group.Error),
		}
		if !req.Values.Has("id") {
			counted, err := s.DeadLetterOps.CountDead(ctx, jobstore.DeadFilter{Group: group.Group}, jobstore.Matching{})
			b.Jobs, b.UpTo, b.AsOf = counted.Jobs, counted.UpTo, asOf(counted)
			return b, err
		}
		letter, err := s.deadLetter(ctx, group.Group, req.Values.Get("id"))
		b.ID, b.Jobs, b.Error, b.What = letter.ID, 1, format.PlainText(letter.Error), deadEffects[action].one
		b.name = fmt.Sprintf("%s dead letter %d", title(action), letter.ID)
		return b, err
	}
}

// errNoSuchLetter answers a request for a job that is not a dead letter of the group.
var errNoSuchLetter = web.Refuse(http.StatusNotFound, "The job is not a dead letter of this group. It may have been retried, discarded or removed after its retention.")

func (s *Pages) deadLetter(ctx context.Context, group, text string) (letter jobstore.DeadLetter, err error) {
	id, err := cluster.JobID(text)
	if err != nil {
		return letter, err
	}
	found, err := s.Source.Dead.DeadLetters(ctx, jobstore.DeadFilter{Group: group, IDs: []int64{id}}, 0, 1)
	switch {
	case err != nil:
		return letter, fmt.Errorf("read dead letters: %w", err)
	case len(found) == 0:
		return letter, errNoSuchLetter
	default:
		return found[0], nil
	}
}

// hasDead reports whether a group has dead letters.
func (s *Pages) hasDead(ctx context.Context, group string) bool {
	groups, err := s.Source.Dead.DeadGroups(ctx, jobstore.DeadFilter{Group: group})
	return err == nil && len(groups) > 0
}

// formDead applies an action to a group, or to one job of it. The reader stays on the page
// of the group while that has dead letters.
func (s *Pages) formDead(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fields, ok := s.Form(w, r)
		if !ok {
			return
		}
		filter, counted, err := deadOf(r.PathValue("group"), fields)
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		done, err := s.ActOnDead(r.Context(), jobstore.Order{Action: action, By: auth.RequestOrigin(r, viaPage)}, filter, counted, false)
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		back := "/dead"
		if filter.IDs != nil && s.hasDead(r.Context(), filter.Group) {
			back = deadPath(filter.Group)
		}
		redirectWithNotice(w, r, back+"?"+web.Encode("did", string(action), "n", strconv.Itoa(done.Changed)))
	}
}

// deadOf returns what a form is for: one dead letter of a group, or all that were counted.
func deadOf(group string, fields url.Values) (filter jobstore.DeadFilter, counted jobstore.Matching, err error) {
	filter.Group = group
	text := fields.Get("id")
	if text == "" {
		counted, err = countedBefore(fields)
		return filter, counted, err
	}
	id, err := cluster.JobID(text)
	filter.IDs = []int64{id}
	return filter, counted, err
}
