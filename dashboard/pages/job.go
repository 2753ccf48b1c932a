package pages

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
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
	Node    charts.Node
	Running string
	Verdict charts.Badge
	Why     string
}

func (s *Pages) placementOf(ctx context.Context, job jobstore.Job, colors charts.Palette) (b placementBody, err error) {
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

func newCandidateRow(c explain.Candidate, colors charts.Palette) candidateRow {
	reasons := make([]string, len(c.Rejected))
	for i, r := range c.Rejected {
		reasons[i] = r.Detail
	}
	row := candidateRow{
		Node: colors.Node(c.NodeID), Running: fmt.Sprintf("%d of %d", c.Running, c.Slots),
		Verdict: charts.Badge{Words: "rejected", Tone: "idle", Icon: "cross"}, Why: strings.Join(reasons, "; "),
	}
	switch {
	case c.Chosen:
		row.Verdict = charts.Badge{Words: "chosen", Tone: "ok", Icon: "check"}
	case len(c.Rejected) == 0:
		row.Verdict = charts.Badge{Words: "could take it", Tone: "wait", Icon: "dot"}
	}
	return row
}

// acts returns the buttons for actions that the job's state permits.
func (s *Pages) acts(req *request, job jobstore.Job) []act {
	var buttons []act
	for _, action := range jobstore.Actions {
		if s.JobOps != nil && req.may(route.Operator) && action.Refuses(job.State) == "" {
			buttons = append(buttons, act{jobPath(job.ID) + "/" + string(action), title(action), Icons[action]})
		}
	}
	return buttons
}

// jobNotice reports the result of the form that redirected to the page.
func jobNotice(req *request, job jobstore.Job) string {
	switch jobstore.Action(req.Values.Get("did")) {
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
	case didReplace:
		return "An equal job was waiting. It has the new arguments."
	case didDebounce:
		return "An equal job was waiting. It has the new arguments and is due later."
	case didThrottle:
		return "Nothing was added: this job was enqueued not long ago."
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
func loadJobAct(action jobstore.Action) func(*Pages, context.Context, *request) (body, error) {
	return func(s *Pages, ctx context.Context, req *request) (body, error) {
		id, err := cluster.JobID(req.Values.Get("id"))
		if err != nil {
			return nil, err
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
			Job:  newJobRow(facts.now, job, facts.colors), Action: string(action), Title: title(action), Icon: Icons[action],
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
func (s *Pages) formAct(action jobstore.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.Form(w, r); !ok {
			return
		}
		change, err := s.Act(r.Context(), jobstore.Order{Action: action, By: auth.RequestOrigin(r, viaPage)}, r.PathValue("id"))
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		redirectWithNotice(w, r, jobPath(change.ID)+"?did="+string(action))
	}
}

type attemptRow struct {
	Attempt  int
	Path     string
	Shown    bool
	Outcome  charts.Badge
	Node     charts.Node
	Started  format.Stamp
	Duration string
	Code     string
	Output   string
	Error    string
}

func attemptRows(now time.Time, job jobstore.Job, shown int, colors charts.Palette) []attemptRow {
	attempts := job.Runs()
	rows := make([]attemptRow, 0, len(attempts))
	for _, a := range attempts {
		row := attemptRow{
			Attempt: a.Attempt, Path: fmt.Sprintf("%s?attempt=%d", jobPath(job.ID), a.Attempt), Shown: a.Attempt == shown,
			Outcome: charts.OutcomeBadge(a.Outcome), Node: colors.Node(a.NodeID),
			Started: format.NewStamp(format.ModeAgo, now, a.StartedAt), Duration: format.Millis(a.DurationMS), Code: code(a),
			Output: sizeOf(a), Error: format.PlainText(a.Error),
		}
		if a.Outcome == "" {
			row.Duration, row.Output = format.Coarse(now.Sub(a.StartedAt)), "–" // known when it ends
		}
		rows = append(rows, row)
	}
	return rows
}

func code(a jobstore.Attempt) string {
	switch {
	case a.ExitCode != nil:
		return "exit " + strconv.Itoa(*a.ExitCode)
	case a.StatusCode != nil:
		return "HTTP " + strconv.Itoa(*a.StatusCode)
	default:
		return "–"
	}
}

func sizeOf(a jobstore.Attempt) string {
	text := format.BytesText(a.OutputBytes)
	if a.DroppedBytes > 0 {
		text += " (" + format.BytesText(a.DroppedBytes) + " dropped)"
	}
	return text
}

type jobBody struct {
	base
	Job jobRow
	// Before leads to what happened before the job failed.
	Before string
	Notice string
	Acts   []act
	Facts  []jobFact
	// Runs is what the job runs, as the configuration in force defines it.
	Runs definitionBody
	// Placement is set for a waiting job.
	Placement placementBody
	Args      string
	Result    string
	Attempts  []attemptRow
	// Timeline shows the attempts from the job's creation to its end.
	Timeline       []charts.AttemptBar
	TimelineLabel  string
	TimelineAxis   []charts.AxisMark
	TimelineHeight int
	Shown          int
	View           outputView
	Output         []piece
	Found          string
	Cut            bool
	Running        bool
}

// jobFact is a fact about a job. Path is the address of a page about it, if there is one.
type jobFact struct{ Name, Value, Path string }

// definitionBody describes what a job runs.
type definitionBody struct {
	Name, Text string
	Facts      []fact
}

// definitionNames say what the text of a definition is.
var definitionNames = map[string]string{config.KindShell: "Command", config.KindHTTP: "Request", config.KindSQL: "Statement"}

func newDefinitionBody(d *cronstore.Definition) (b definitionBody) {
	if d == nil || d.Text() == "" {
		return b
	}
	b.Name, b.Text = definitionNames[d.Kind], format.PlainText(d.Text())
	b.Facts = withoutEmpty([]fact{{"Directory", d.Cwd}, {"User", d.User}, {"Database", d.Database}, {"Timeout", d.Timeout}})
	return b
}

func (s *Pages) loadJob(ctx context.Context, req *request) (body, error) {
	id, err := cluster.JobID(req.Values.Get("id"))
	if err != nil {
		return nil, err
	}
	shown := req.AtMost("attempt", cluster.MaxAttempt)
	if err := req.err(); err != nil {
		return nil, err
	}
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	job, err := s.Source.Jobs.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if shown == 0 {
		shown = job.LastAttempt()
	}
	view := outputViewOf(req, id)
	if err := req.out.update(ctx, s.Source.Jobs, id, shown, view.Find); err != nil {
		return nil, err
	}
	b := jobBody{base: base{name: fmt.Sprintf("Job %d", id), beat: s.pulseOf(facts)}, Shown: shown}
	b.Job, b.Args = newJobRow(facts.now, job, facts.colors), format.PrettyJSON(job.Args)
	b.Result = resultText(job.Result)
	if b.Job.Error = format.PlainText(job.LastError); b.Job.Error != "" {
		b.Before = changesBefore(cmp.Or(job.FinalizedAt, job.AttemptedAt))
	}
	b.Facts = jobFacts(job)
	if b.Runs, err = s.definitionOf(ctx, req, job.Kind); err != nil {
		return nil, err
	}
	b.Attempts = attemptRows(facts.now, job, shown, facts.colors)
	b.Timeline, b.TimelineAxis, b.TimelineLabel = charts.DrawAttempts(facts.now, job)
	b.TimelineHeight = charts.AttemptHeight * len(b.Timeline)
	b.View = view
	b.Output, b.Found = req.out.pieces(view.Times)
	b.Cut = req.out.Cut
	b.Running = job.State == "running" && shown == job.Attempt
	b.Acts, b.Notice = s.acts(req, job), jobNotice(req, job)
	b.Placement, err = s.placementOf(ctx, job, facts.colors)
	return &b, err
}

// maxShownResult bounds the result on the page, in bytes. That of a Go worker may have
// megabytes.
const maxShownResult = 16 << 10

func resultText(result json.RawMessage) string {
	if len(result) <= maxShownResult {
		return format.PlainText(format.PrettyJSON(result))
	}
	return format.PlainText(strings.ToValidUTF8(string(result[:maxShownResult]), "")) + "..."
}

// definitionOf reads what a job runs, once for a page and its stream.
func (s *Pages) definitionOf(ctx context.Context, req *request, kind string) (definitionBody, error) {
	if req.definition == nil {
		read, err := s.Source.Crons.Definition(ctx, kind)
		if err != nil {
			return definitionBody{}, err
		}
		body := newDefinitionBody(read)
		req.definition = &body
	}
	return *req.definition, nil
}

func jobFacts(job jobstore.Job) []jobFact {
	due := format.UTC(job.ScheduledAt)
	if due == format.UTC(job.CreatedAt) {
		due = "at once"
	}
	facts := []jobFact{
		{"Queue", job.Queue, queuePath(job.Queue)},
		{"Priority", strconv.Itoa(job.Priority), ""},
		{"Attempt", fmt.Sprintf("%d of %d", job.Attempt, job.MaxAttempts), ""},
		{"Created", format.UTC(job.CreatedAt), ""},
		{"Due", due, ""},
		{"Started", format.UTC(job.AttemptedAt), ""},
		{"Finished", format.UTC(job.FinalizedAt), ""},
	}
	if !job.Tick.IsZero() {
		facts = append(facts, jobFact{"Tick", format.UTC(job.Tick), tickPath(job.Cron, job.Tick)})
	}
	if job.Duplicates != nil {
		facts = append(facts, jobFact{"Duplicates", format.PlainText(job.Duplicates.Text()), ""})
	}
	if job.Progress != nil {
		facts = append(facts, jobFact{"Progress", format.PlainText(job.Progress.Text()), ""})
	}
	if job.Snoozes > 0 {
		facts = append(facts, jobFact{"Snoozed", format.Plural(job.Snoozes, "time", "times"), ""})
	}
	if round := job.SecondRound; round != nil {
		facts = append(facts, jobFact{"Second round", fmt.Sprintf("after attempt %d, %s", round.Attempt, format.UTC(round.At)), ""})
	}
	return slices.DeleteFunc(facts, func(f jobFact) bool { return f.Value == "" })
}
