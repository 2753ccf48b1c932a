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

// placementBody describes where a waiting job will run. It is empty for a job that runs or
// has ended, whose attempts name the node.
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

func (s *pageServer) placementOf(ctx context.Context, job jobstore.Job, colors palette) (b placementBody, err error) {
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

// act is a button of a page.
type act struct {
	Path, Words, Icon string
}

// acts returns the buttons for actions that the job's state permits.
func (s *pageServer) acts(req *request, job jobstore.Job) []act {
	var buttons []act
	for _, action := range jobstore.Actions {
		if s.JobOps != nil && req.may(operator) && action.Refuses(job.State) == "" {
			buttons = append(buttons, act{jobPath(job.ID) + "/" + string(action), title(action), icons[action]})
		}
	}
	return buttons
}

var icons = map[jobstore.Action]string{jobstore.Retry: "retry", jobstore.Cancel: "stop", jobstore.Discard: "cross"}

func title(action jobstore.Action) string {
	return strings.ToUpper(string(action[:1])) + string(action[1:])
}

// jobNotice reports the result of the form that redirected to the page.
func jobNotice(req *request, job jobstore.Job) string {
	switch jobstore.Action(req.values.Get("did")) {
	case jobstore.Cancel:
		if job.State == "running" {
			return "It is being stopped."
		}
		return "It was cancelled."
	case jobstore.Retry:
		return "It was made available."
	case jobstore.Discard:
		return "It was discarded."
	case didEnqueue:
		return "It was enqueued."
	case didNothing:
		return "An equal job exists already. Nothing was added."
	default:
		return ""
	}
}

// jobActBody is the confirmation page of an action.
type jobActBody struct {
	base
	Job    jobRow
	Action string
	Title  string
	Icon   string
	// What describes the effect. Refused is the reason why it is not possible.
	What    string
	Refused string
}

// loadJobAct loads the confirmation page of an action.
func loadJobAct(action jobstore.Action) func(*pageServer, context.Context, *request) (body, error) {
	return func(s *pageServer, ctx context.Context, req *request) (body, error) {
		id, ok := jobID(req.values.Get("id"))
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

// effect describes the effect of an action on a job in a state.
func effect(action jobstore.Action, state string) string {
	switch {
	case action == jobstore.Cancel && state == "running":
		return "Its node stops it. What it has done so far remains, and it does not run again."
	case action == jobstore.Cancel:
		return "It will not run."
	case action == jobstore.Discard:
		return "It ends as if its last attempt had failed, and notifications of failed runs are sent."
	case slices.Contains([]string{"scheduled", "retryable", "pending"}, state):
		return "It runs now instead of later."
	default:
		return "It runs once more, from the beginning. What its earlier attempts have done remains."
	}
}

// formAct applies the confirmed action.
func (s *pageServer) formAct(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.form(w, r); !ok {
			return
		}
		change, err := s.act(r.Context(), jobstore.Order{Action: action, By: requestOrigin(r, viaPage)}, r.PathValue("id"))
		if err != nil {
			s.answerError(w, r, err)
			return
		}
		http.Redirect(w, r, jobPath(change.ID)+"?did="+string(action), http.StatusSeeOther)
	}
}
