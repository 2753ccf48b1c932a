package dashboardtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Operator records what it is requested to do.
type Operator struct{ *Cluster }

func (f Operator) note(cron, what string) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if f.Err != nil {
		return f.Err
	}
	if cron != "backup" {
		return cronstore.ErrNotFound
	}
	f.Done = append(f.Done, what)
	return nil
}

func (f Operator) Pause(_ context.Context, cron string, order cronstore.PauseOrder) (cronstore.Cron, bool, error) {
	return cronstore.Cron{Name: cron, PausedAt: Epoch}, true, f.note(cron, "pause by "+order.By+because(order.Reason))
}

func (f Operator) Resume(_ context.Context, cron string, order cronstore.PauseOrder) (cronstore.Cron, bool, error) {
	return cronstore.Cron{Name: cron}, false, f.note(cron, "resume by "+order.By+because(order.Reason))
}

// PauseMany notes the names, but changes nothing.
func (f Operator) PauseMany(_ context.Context, names []string, paused bool, order cronstore.PauseOrder) (cronstore.PausedMany, error) {
	f.Done = append(f.Done, fmt.Sprintf("paused=%t %v by %s%s", paused, names, order.By, because(order.Reason)))
	return cronstore.PausedMany{Operation: Operation, Changed: len(names)}, f.Err
}

// Operation is the only operation on many crons that can be undone.
const Operation = "OPERATION1"

func (f Operator) UndoPauses(_ context.Context, operation string, order cronstore.PauseOrder) (cronstore.PausedMany, bool, error) {
	if operation != Operation {
		return cronstore.PausedMany{}, false, cronstore.ErrNotFound
	}
	f.Done = append(f.Done, "undo "+operation+" by "+order.By)
	return cronstore.PausedMany{Operation: "OPERATION2", Changed: 2}, false, f.Err
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " because " + reason
}

func (f Operator) Trigger(_ context.Context, t cronstore.Trigger) (cronstore.Tick, error) {
	row := cronstore.Tick{Cron: t.Cron, Tick: t.At, JobID: 43, Verdict: cronstore.Triggered}
	switch {
	case t.At.After(Epoch):
		return row, cronstore.ErrFuture
	case t.At.Equal(Epoch.Add(-10 * time.Hour)):
		row.JobID, row.Verdict = 42, cronstore.Fired
		return row, cronstore.ErrTaken
	case !t.At.IsZero() && t.At.Minute() != 0:
		return row, cronstore.ErrNotDue
	}
	return row, f.note(t.Cron, fmt.Sprintf("trigger %s %s by %s", t.At.Format(time.DateTime), t.Args, t.By))
}

func (f Operator) BackfillTicks(_ context.Context, span cronstore.Span) (cronstore.Backfill, error) {
	return cronstore.Backfill{Cron: span.Cron, Ticks: []time.Time{span.From}, Left: 2, More: true},
		f.note(span.Cron, fmt.Sprintf("plan %s to %s at most %d", span.From.UTC().Format(time.DateTime), span.To.UTC().Format(time.DateTime), span.Limit))
}

func (f Operator) Backfill(_ context.Context, b cronstore.Backfill, by string, _ func(int)) (int, error) {
	return len(b.Ticks), f.note(b.Cron, "backfill by "+by)
}

// Act finds the jobs of the cluster, and changes none.
func (f Operator) Act(ctx context.Context, order jobstore.Order, ids []int64) ([]jobstore.Change, error) {
	var changes []jobstore.Change
	for _, id := range ids {
		job, err := Jobs(f).Get(ctx, id)
		switch change := (jobstore.Change{ID: id, Kind: job.Kind, Was: job.State, State: "changed", Refused: order.Action.Refuses(job.State)}); {
		case errors.Is(err, jobstore.ErrNotFound):
			changes = append(changes, jobstore.Change{ID: id, Missing: true})
		case err != nil:
			return nil, err
		default:
			changes = append(changes, change)
			if change.Refused == "" {
				_ = f.note("backup", fmt.Sprintf("%s job %d by %s", order.Action, id, order.By))
			}
		}
	}
	return changes, nil
}

func (f Operator) CountMatching(_ context.Context, action jobstore.Action, filter jobstore.Filter, before jobstore.Matching) (jobstore.Matching, error) {
	if filter.Queue == "vast" {
		return jobstore.Matching{Jobs: 20_001}, nil
	}
	if before.UpTo == 41 {
		return jobstore.Matching{Jobs: 2, UpTo: 41}, f.note("backup", fmt.Sprintf("plan to %s %s to 41", action, filter.Kind))
	}
	return jobstore.Matching{Jobs: 3, UpTo: 42}, f.note("backup", fmt.Sprintf("plan to %s %s", action, filter.Kind))
}

func (f Operator) ActOnAll(_ context.Context, order jobstore.Order, filter jobstore.Filter, counted jobstore.Matching) (int, error) {
	return int(counted.Jobs) - 1, f.note("backup", fmt.Sprintf("%s all %s to %d by %s", order.Action, filter.Kind, counted.UpTo, order.By))
}

func (f Operator) Kinds(context.Context) (live, known []string, err error) {
	if f.Hostile {
		return []string{Attack}, []string{Attack}, nil
	}
	return []string{"backup", "dump"}, []string{"backup", "dump", "old"}, nil
}

// Fields returns the arguments of the kind dump.
func (f Operator) Fields(_ context.Context, kind string) ([]argschema.Field, error) {
	if f.Hostile {
		return poisoned([]argschema.Field{{Name: "table", Title: "t", Types: "string", Default: `"x"`, Description: "d"}, {Name: "speed", Values: []string{`"slow"`}}}), nil
	}
	if kind != "dump" {
		return nil, nil
	}
	return []argschema.Field{{Name: "table", Types: "string", Required: true}, {Name: "speed", Values: []string{`"slow"`}, Default: `"slow"`, Description: "How <fast>."}}, nil
}

// Enqueue returns a duplicate for the unique key "taken".
func (f Operator) Enqueue(_ context.Context, job jobstore.NewJob, ownUnique bool, by string) (jobstore.Enqueued, error) {
	switch job.Unique {
	case "misfit":
		return jobstore.Enqueued{}, config.SchemaError{{Path: "args.table", Message: "missing"}}
	case "taken":
		return jobstore.Enqueued{ID: 42, Kind: job.Kind, Existing: true, Verdict: jobstore.Duplicate, State: "retryable", Queue: "default", ScheduledAt: Epoch}, nil
	}
	added := jobstore.Enqueued{ID: 42, Kind: job.Kind, Verdict: jobstore.Added, State: "available", Queue: "default", ScheduledAt: Epoch}
	if job.Duplicates.Throttle > 0 {
		added.Existing, added.Verdict, added.AcceptsAt = true, jobstore.Throttled, new(Epoch.Add(job.Duplicates.Throttle.Std()))
	}
	if job.Unique == "gone" {
		added.State = ""
	}
	said := fmt.Sprintf("enqueue %s %s %s %d %s by %s", job.Kind, job.Args, job.Queue, job.Priority, format.UTC(job.ScheduledAt), by)
	if ownUnique {
		said += fmt.Sprintf(", unique %q %+v", job.Unique, job.UniqueBy)
	}
	if job.Weight > 0 {
		said += fmt.Sprintf(", weight %d", job.Weight)
	}
	if job.Duplicates.Set() {
		said += fmt.Sprintf(", duplicates %+v", job.Duplicates)
	}
	return added, f.note("backup", said)
}

func (f Operator) PauseQueue(_ context.Context, queue string, order jobstore.QueuePauseOrder) (jobstore.QueuePause, bool, error) {
	pause, did := jobstore.QueuePause{PausedAt: Epoch, PausedBy: order.By, PauseReason: order.Reason}, "pause queue by "+order.By+because(order.Reason)
	if order.For != 0 {
		pause.PausedUntil, did = Epoch.Add(order.For), did+" for "+order.For.String()
	}
	if !order.Jobs.All() {
		did += " of " + order.Jobs.String()
	}
	return pause, true, f.noteQueue(queue, did)
}

func (f Operator) ResumeQueue(_ context.Context, queue string, order jobstore.QueuePauseOrder) (jobstore.QueuePause, bool, error) {
	did := "resume queue by " + order.By + because(order.Reason)
	if !order.Jobs.All() {
		did += " of " + order.Jobs.String()
	}
	return jobstore.QueuePause{}, false, f.noteQueue(queue, did)
}

func (f Operator) noteQueue(queue, what string) error {
	if queue == "nobody" {
		return jobstore.ErrNoQueue
	}
	return f.note("backup", what)
}

func (f Operator) HandOver(_ context.Context, role, target, by string) (leaderstore.Leader, bool, error) {
	leader := leaderstore.Leader{Role: role, NodeID: "node-1", Term: 7}
	switch {
	case role != "scheduler":
		return leader, false, &handover.RefusedError{Missing: true, Why: "no role " + role}
	case target == "mute":
		return leader, false, &handover.RefusedError{Why: "mute cannot lead"}
	}
	return leader, target != leader.NodeID, f.note("backup", fmt.Sprintf("hand %s over to %q by %s", role, target, by))
}

func (f Operator) Drain(_ context.Context, node, by string) ([]leaderstore.Leader, error) {
	if node != "node-1" {
		return nil, &handover.RefusedError{Missing: true, Why: "no node " + node}
	}
	return []leaderstore.Leader{{Role: "scheduler", NodeID: node, Term: 7}}, f.note("backup", "drain by "+by)
}

func (f Operator) Undrain(_ context.Context, _, by string) error {
	return f.note("backup", "undrain by "+by)
}

// Drill finds the leader of the scheduler. The compactor has no other candidate.
func (f Operator) Drill(_ context.Context, p handover.Params) (handover.DrillResult, error) {
	switch p.Role {
	case "scheduler":
		return handover.DrillResult{Role: p.Role, From: "node-1", FromTerm: 7, To: "node-2", ToTerm: 8, AskedAt: Epoch, TookMS: 12.5, EndReason: "stepped_down"}, f.note("backup", "drill by "+p.By)
	case "log_compactor":
		return handover.DrillResult{}, &handover.NotTakenError{Role: p.Role}
	default:
		return handover.DrillResult{}, &handover.RefusedError{Missing: true, Why: "no role " + p.Role}
	}
}
