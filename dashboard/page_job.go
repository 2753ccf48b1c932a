package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// placementBody says where a job that waits goes. It is empty for one that runs or
// has ended: its attempts tell who ran it.
type placementBody struct {
	Sentence   string
	Candidates []candidateRow
}

type candidateRow struct {
	Node    nodeName
	Running string
	Verdict badge
	Why     string
}

func (s *server) placementOf(ctx context.Context, job jobstore.Job, colors palette) (b placementBody, err error) {
	if jobstore.Finished(job.State) || job.State == "running" {
		return b, nil
	}
	placement, err := s.Source.Jobs.Placement(ctx, job.ID)
	if err != nil {
		return b, err
	}
	b.Sentence = placement.Sentence
	for _, c := range placement.Candidates {
		b.Candidates = append(b.Candidates, newCandidateRow(c, colors))
	}
	return b, nil
}

func newCandidateRow(c explain.Candidate, colors palette) candidateRow {
	reasons := make([]string, len(c.Rejected))
	for i, r := range c.Rejected {
		reasons[i] = r.Detail
	}
	row := candidateRow{
		Node: nodeName{c.NodeID, colors.of(c.NodeID)}, Running: fmt.Sprintf("%d of %d", c.Running, c.Slots),
		Verdict: badge{"rejected", "idle", "cross"}, Why: strings.Join(reasons, "; "),
	}
	switch {
	case c.Chosen:
		row.Verdict = badge{"chosen", "ok", "check"}
	case len(c.Rejected) == 0:
		row.Verdict = badge{"could take it", "wait", "dot"}
	}
	return row
}

// act is a button of a job's page.
type act struct {
	Path, Words, Icon string
}

// acts are what can be done to the job now.
func (s *server) acts(ask *request, job jobstore.Job) []act {
	var buttons []act
	for _, action := range jobstore.Actions {
		if s.Changer != nil && ask.may(operator) && action.Refuses(job.State) == "" {
			buttons = append(buttons, act{jobPath(job.ID) + "/" + string(action), title(action), icons[action]})
		}
	}
	return buttons
}

var icons = map[jobstore.Action]string{jobstore.Retry: "retry", jobstore.Cancel: "stop", jobstore.Discard: "cross"}

func title(action jobstore.Action) string {
	return strings.ToUpper(string(action[:1])) + string(action[1:])
}

// jobNotice says what the form that led here has done.
func jobNotice(ask *request, job jobstore.Job) string {
	switch jobstore.Action(ask.values.Get("did")) {
	case jobstore.Cancel:
		if job.State == "running" {
			return "It is told to stop."
		}
		return "It was cancelled."
	case jobstore.Retry:
		return "It was made available."
	case jobstore.Discard:
		return "It was discarded."
	case didEnqueue:
		return "It was enqueued."
	case didNothing:
		return "It is the same as the one that was to be enqueued. Nothing was added."
	default:
		return ""
	}
}

// jobActBody asks whether it is really meant.
type jobActBody struct {
	base
	Job    jobRow
	Action string
	Title  string
	Icon   string
	// What says what happens; Refused why it cannot.
	What    string
	Refused string
}

// loadJobAct is the page that asks before anything is done.
func loadJobAct(action jobstore.Action) func(*server, context.Context, *request) (body, error) {
	return func(s *server, ctx context.Context, ask *request) (body, error) {
		id, ok := jobID(ask.values.Get("id"))
		if !ok {
			return nil, jobstore.ErrNotFound
		}
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		job, err := s.Source.Jobs.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		return &jobActBody{
			base: base{name: fmt.Sprintf("%s job %d", title(action), id), beat: s.pulseOf(facts)},
			Job:  newJobRow(facts.now, job, facts.colors), Action: string(action), Title: title(action), Icon: icons[action],
			What: effect(action, job.State), Refused: action.Refuses(job.State),
		}, nil
	}
}

// effect says what an action does to a job in this state.
func effect(action jobstore.Action, state string) string {
	switch {
	case action == jobstore.Cancel && state == "running":
		return "Its node is told to stop it. What it has done so far stays done, and it is not run again."
	case action == jobstore.Cancel:
		return "It is not run, now or later."
	case action == jobstore.Discard:
		return "It is given up as if its last attempt had failed: who is told of failed runs is told."
	case slices.Contains([]string{"scheduled", "retryable", "pending"}, state):
		return "It runs now instead of later."
	default:
		return "It runs once more, from the beginning. What its earlier attempts have done stays done."
	}
}

// formAct does it once it was confirmed.
func (s *server) formAct(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.form(w, r); !ok {
			return
		}
		change, err := s.act(r.Context(), jobstore.Order{Action: action, By: whoAsks(r, viaPage)}, r.PathValue("id"))
		if err != nil {
			s.answer(w, r, err)
			return
		}
		http.Redirect(w, r, jobPath(change.ID)+"?did="+string(action), http.StatusSeeOther)
	}
}
