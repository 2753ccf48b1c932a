package forge

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/dashboard"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// source lets the pages read through the stores.
func (n *Node) source() dashboard.Source {
	return dashboard.Source{
		Leadership: leadershipReader{n.pool},
		Nodes:      nodeReader{n.pool},
		Crons:      cronReader{n.pool},
		Jobs:       jobReader{n.pool},
		Counts:     jobReader{n.pool},
		Events:     eventReader{n.pool},
	}
}

func (n *Node) appliedHash(ctx context.Context) (string, error) {
	inForce, err := cronstore.ConfigInForce(ctx, n.pool)
	if errors.Is(err, cronstore.ErrNotFound) {
		return "", nil
	}
	return inForce.Hash, err
}

type leadershipReader struct{ pool *pgxpool.Pool }

func (r leadershipReader) Leaders(ctx context.Context) ([]leaderstore.Leader, error) {
	return leaderstore.Leaders(ctx, r.pool)
}

func (r leadershipReader) History(ctx context.Context, role string, limit int) ([]leaderstore.Tenure, error) {
	return leaderstore.History(ctx, r.pool, role, limit)
}

type nodeReader struct{ pool *pgxpool.Pool }

func (r nodeReader) List(ctx context.Context) ([]nodestore.Node, error) {
	return nodestore.List(ctx, r.pool)
}

type cronReader struct{ pool *pgxpool.Pool }

func (r cronReader) List(ctx context.Context) ([]cronstore.Cron, error) {
	return cronstore.List(ctx, r.pool)
}

func (r cronReader) Ticks(ctx context.Context, cron string, before time.Time, limit int) ([]cronstore.Tick, error) {
	return cronstore.Ticks(ctx, r.pool, cron, before, limit)
}

type jobReader struct{ pool *pgxpool.Pool }

func (r jobReader) List(ctx context.Context, filter jobstore.Filter) ([]jobstore.Job, error) {
	return jobstore.List(ctx, r.pool, filter)
}

func (r jobReader) Get(ctx context.Context, id int64) (jobstore.Job, error) {
	return jobstore.Get(ctx, r.pool, id)
}

func (r jobReader) Logs(ctx context.Context, id int64, attempt, afterSeq int) ([]jobstore.LogChunk, error) {
	return jobstore.Logs(ctx, r.pool, id, attempt, afterSeq)
}

func (r jobReader) CountsByQueueAndState(ctx context.Context) ([]jobstore.Count, error) {
	return jobstore.CountsByQueueAndState(ctx, r.pool)
}

type eventReader struct{ pool *pgxpool.Pool }

func (r eventReader) List(ctx context.Context, before int64, limit int) ([]eventstore.Event, error) {
	return eventstore.List(ctx, r.pool, before, limit)
}
