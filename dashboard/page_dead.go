package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// deadGroups is how many groups the page lists.
const deadGroups = 200

type deadBody struct {
	base
	Notice   string
	Operates bool
	Groups   []deadGroupRow
	Hidden   int
}

type deadGroupRow struct {
	Group, Path string
	Kind        string
	Jobs        int64
	First, Last stamp
	Again       stamp
	Error       string
}

func deadPath(group string) string { return "/dead/" + url.PathEscape(group) }

func (s *server) loadDead(ctx context.Context, ask *request) (body, error) {
	said := deadNotice(ask)
	if err := ask.err(); err != nil {
		return nil, err
	}
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	groups, err := s.dead.get(ctx)
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	b := deadBody{base: base{name: "Dead letters", beat: s.pulseOf(facts)}, Notice: said, Operates: s.DeadChanger != nil && ask.may(operator)}
	shown := groups[:min(len(groups), deadGroups)]
	for _, g := range shown {
		b.Groups = append(b.Groups, newDeadGroupRow(facts.now, g))
	}
	b.Hidden = len(groups) - len(shown)
	return &b, nil
}

func newDeadGroupRow(now time.Time, g jobstore.DeadGroup) deadGroupRow {
	return deadGroupRow{
		Group: g.Group, Path: deadPath(g.Group), Kind: g.Kind, Jobs: g.Jobs,
		First: newStamp(modeAgo, now, g.First), Last: newStamp(modeAgo, now, g.Last), Again: newStamp(modeUntil, now, g.SecondRound),
		Error: plainText(g.Error),
	}
}

// deadNotice says what the form that led here has done.
func deadNotice(ask *request) string {
	n := int(ask.number("n"))
	switch ask.values.Get("did") {
	case string(jobstore.Retry):
		return plural(n, "job is", "jobs are") + " available again."
	case string(jobstore.Discard):
		return plural(n, "dead letter", "dead letters") + " discarded."
	default:
		return ""
	}
}

// deadGroupBody is one group with its jobs.
type deadGroupBody struct {
	base
	Group    deadGroupRow
	Operates bool
	Letters  []deadLetterRow
	Older    string
}

type deadLetterRow struct {
	ID       int64
	Path     string
	Cron     string
	CronPath string
	Node     nodeName
	Attempts int
	Died     stamp
	Again    stamp
	Error    string
	Lost     []string // how each node was lost that the job ran on
}

func (s *server) loadDeadGroup(ctx context.Context, ask *request) (body, error) {
	before := ask.number("before")
	if err := ask.err(); err != nil {
		return nil, err
	}
	facts, group, err := s.deadGroup(ctx, ask.values.Get("group"))
	if err != nil {
		return nil, err
	}
	letters, err := s.Source.Dead.Letters(ctx, jobstore.DeadFilter{Group: group.Group}, before, defaultLimit)
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	b := deadGroupBody{
		base:  base{name: "Dead letters of " + group.Kind, beat: s.pulseOf(facts), past: before != 0},
		Group: newDeadGroupRow(facts.now, group), Operates: s.DeadChanger != nil && ask.may(operator),
	}
	for _, l := range letters {
		b.Letters = append(b.Letters, deadLetterRow{
			ID: l.ID, Path: jobPath(l.ID), Cron: l.Cron, CronPath: cronPath(l.Cron), Node: nodeName{l.NodeID, facts.colors.of(l.NodeID)},
			Attempts: l.Attempt, Died: newStamp(modeAgo, facts.now, l.DiedAt), Again: newStamp(modeUntil, facts.now, l.SecondRound), Error: plainText(l.Error),
			Lost: lostNodes(l),
		})
	}
	if len(letters) == defaultLimit {
		b.Older = b.Group.Path + "?" + values("before", strconv.FormatInt(letters[len(letters)-1].ID, 10))
	}
	return &b, nil
}

// lostNodes says where each lost attempt ran, and how its node was lost.
func lostNodes(l jobstore.DeadLetter) []string {
	lines := make([]string, len(l.Lost))
	for i, lost := range l.Lost {
		lines[i] = plainText(fmt.Sprintf("attempt %d on %s: %s", lost.Attempt, lost.NodeID, lost.Error))
	}
	return lines
}

func (s *server) deadGroup(ctx context.Context, name string) (facts clusterFacts, group jobstore.DeadGroup, err error) {
	if facts, err = s.cluster(ctx); err != nil {
		return facts, group, err
	}
	groups, err := s.Source.Dead.Groups(ctx, jobstore.DeadFilter{Group: name})
	if err != nil {
		return facts, group, fmt.Errorf("read dead letters: %w", err)
	}
	if len(groups) == 0 {
		return facts, group, errNoSuchGroup
	}
	return facts, groups[0], nil
}

// deadActBody asks whether it is really meant.
type deadActBody struct {
	base
	Group               deadGroupRow
	Action, Title, Icon string
	What                string
}

// loadDeadAct is the page that asks before anything is done to a group.
func loadDeadAct(action jobstore.Action) func(*server, context.Context, *request) (body, error) {
	return func(s *server, ctx context.Context, ask *request) (body, error) {
		facts, group, err := s.deadGroup(ctx, ask.values.Get("group"))
		if err != nil {
			return nil, err
		}
		what := "They run once more, from the beginning. What their earlier attempts have done stays done."
		if action == jobstore.Discard {
			what = "They are listed no more and get no second round. The jobs stay until their retention is over."
		}
		return &deadActBody{
			base:  base{name: title(action) + " dead letters of " + group.Kind, beat: s.pulseOf(facts)},
			Group: newDeadGroupRow(facts.now, group), Action: string(action), Title: title(action), Icon: icons[action], What: what,
		}, nil
	}
}

// formDead does it to a group, once that was confirmed, or to one job of it.
func (s *server) formDead(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fields, ok := s.form(w, r)
		if !ok {
			return
		}
		filter := jobstore.DeadFilter{Group: r.PathValue("group")}
		if text := fields.Get("id"); text != "" {
			id, ok := jobID(text)
			if !ok {
				s.answer(w, r, errNoSuchJob)
				return
			}
			filter.IDs = []int64{id}
		}
		done, err := s.actOnDead(r.Context(), jobstore.Order{Action: action, By: whoAsks(r, viaPage)}, filter, false)
		if err != nil {
			s.answer(w, r, err)
			return
		}
		http.Redirect(w, r, "/dead?"+values("did", string(action), "n", strconv.Itoa(done.Changed)), http.StatusSeeOther)
	}
}
