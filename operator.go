package forge

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/enqueue"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/queuestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// operator implements the operations of the pages and the API, as the commands do.
type operator struct {
	schema      string
	inserter    enqueue.Inserter
	broadcaster *broadcaster
	pool        requestDB
}

func (n *Node) operator() operator {
	return operator{n.cfg.Database.Schema, n.runner, n.broadcaster, requestDB{n.pool}}
}

func (o operator) Act(ctx context.Context, order jobstore.Order, ids []int64) ([]jobstore.Change, error) {
	return jobstore.Act(ctx, o.pool, order, ids)
}

func (o operator) CountMatching(ctx context.Context, action jobstore.Action, filter jobstore.Filter) (jobstore.Matching, error) {
	return jobstore.CountMatching(ctx, o.pool, action, filter)
}

func (o operator) ActOnAll(ctx context.Context, order jobstore.Order, filter jobstore.Filter, counted jobstore.Matching) (int, error) {
	return jobstore.ActOnAll(ctx, o.pool, order, filter, counted, func(int) {})
}

func (o operator) Kinds(ctx context.Context) (live, known []string, err error) {
	return enqueue.Kinds(ctx, o.pool)
}

func (o operator) Fields(ctx context.Context, kind string) ([]argschema.Field, error) {
	return enqueue.Fields(ctx, o.pool, kind)
}

func (o operator) Enqueue(ctx context.Context, job jobstore.NewJob, ownUnique bool, by string) (jobstore.Enqueued, error) {
	return enqueue.Add(ctx, o.pool, o.inserter, enqueue.Request{Job: job, OwnUnique: ownUnique, By: by})
}

func (o operator) PauseQueue(ctx context.Context, queue, by string) (time.Time, bool, error) {
	return queuestore.Pause(ctx, o.pool, queuestore.Change{Name: queue, By: by, Schema: o.schema})
}

func (o operator) ResumeQueue(ctx context.Context, queue, by string) (time.Time, bool, error) {
	return queuestore.Resume(ctx, o.pool, queuestore.Change{Name: queue, By: by, Schema: o.schema})
}

func (o operator) CountDead(ctx context.Context, filter jobstore.DeadFilter) (jobstore.DeadMatching, error) {
	return jobstore.CountDead(ctx, o.pool, filter)
}

func (o operator) ActOnDead(ctx context.Context, order jobstore.Order, filter jobstore.DeadFilter, counted jobstore.DeadMatching) (int, error) {
	return jobstore.ActOnDead(ctx, o.pool, order, filter, counted, func(int) {})
}

func (o operator) HandOver(ctx context.Context, role, target, by string) (leaderstore.Leader, bool, error) {
	return handover.Request(ctx, o.pool, role, target, by)
}

func (o operator) Drain(ctx context.Context, node, by string) ([]leaderstore.Leader, error) {
	return handover.Drain(ctx, o.pool, node, by)
}

func (o operator) Undrain(ctx context.Context, node, by string) error {
	return handover.Undrain(ctx, o.pool, node, by)
}

// drillTimeout is how long a drill waits for the successor.
const drillTimeout = 30 * time.Second

func (o operator) Drill(ctx context.Context, role, by string) (handover.DrillResult, error) {
	changed, cancel := o.broadcaster.Subscribe()
	defer cancel()
	return handover.Drill(ctx, o.pool, changeWaiter(changed), handover.Params{Role: role, By: by, Within: drillTimeout})
}
