package crons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/tracing"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Manual runs ticks on request. It works on every node: the lock on the cron's row
// excludes the leader, and the unique key of the ledger prevents a second run. The
// overlap policy does not apply. The span of the context is the parent of the ticks' spans.
type Manual struct {
	DB       postgres.DB
	Inserter Inserter
	// Tracer creates the spans of ticks; nil means none: the span of the context is then the
	// parent of the jobs' spans.
	Tracer *tracing.Tracer
	NodeID string
}

// traces returns the spans of the ticks of a request.
func (m Manual) traces(ctx context.Context) *tickTraces {
	return &tickTraces{tracer: m.Tracer, parent: tracing.FromContext(ctx), fence: leaderstore.Fence{NodeID: m.NodeID}}
}

// Trigger runs a cron now, or runs a due tick that has not run. It returns the ledger
// row. Its errors include cronstore's ErrNotFound, ErrTaken (with the row), ErrNotDue and
// ErrFuture.
func (m Manual) Trigger(ctx context.Context, t cronstore.Trigger) (cronstore.Tick, error) {
	var row cronstore.Tick
	traces := m.traces(ctx)
	err := pgx.BeginFunc(ctx, m.DB, func(tx pgx.Tx) error {
		cron, now, err := cronstore.New(tx).LockConfigured(ctx, t.Cron)
		if err != nil {
			return err
		}
		at, err := cron.TickToRun(t.At, now)
		if err != nil {
			return err
		}
		if len(t.Args) > 0 {
			if err := checkArgs(ctx, tx, cron.Spec.Job, t.Args); err != nil {
				return err
			}
			cron.Spec.Args = t.Args
		}
		if row, err = m.run(ctx, tx, &cron, at, "Triggered by "+t.By, traces); err != nil {
			return err
		}
		if row, err = cronstore.New(tx).FindTick(ctx, t.Cron, row.Tick); err != nil {
			return err
		}
		return eventstore.New(tx).Append(ctx, eventstore.Event{Type: eventstore.CronTriggered},
			map[string]any{"cron": t.Cron, "tick": row.Tick.UTC(), "job_id": row.JobID, "by": t.By})
	})
	traces.finish([]cronstore.Tick{row}, err)
	if err != nil {
		return row, fmt.Errorf("trigger cron %s: %w", t.Cron, err)
	}
	return row, nil
}

// checkArgs checks args against the job's schema in the current configuration.
func checkArgs(ctx context.Context, tx pgx.Tx, job string, args json.RawMessage) error {
	settings, err := cronstore.New(tx).KindInForce(ctx, job)
	if err != nil {
		return err
	}
	var own struct {
		Schema json.RawMessage `json:"schema"`
	}
	if settings != nil {
		if err := json.Unmarshal(settings, &own); err != nil {
			return fmt.Errorf("read the settings of %s: %w", job, err)
		}
	}
	return config.CheckArgsBy(config.Schema(own.Schema), args)
}

// run claims a tick and inserts its job.
func (m Manual) run(ctx context.Context, tx pgx.Tx, cron *cronstore.Cron, at time.Time, reason string, traces *tickTraces) (cronstore.Tick, error) {
	row, err := cronstore.New(tx).Claim(ctx, cron, at, cronstore.Triggered, reason)
	if err != nil {
		return row, err
	}
	rows := []cronstore.Tick{row}
	err = m.insert(ctx, tx, cron, rows, traces)
	return rows[0], err
}

// insert inserts the jobs of claimed ticks and links them to their rows.
func (m Manual) insert(ctx context.Context, tx pgx.Tx, cron *cronstore.Cron, rows []cronstore.Tick, traces *tickTraces) error {
	batch := make([]jobstore.NewJob, len(rows))
	for i, row := range rows {
		batch[i] = newJob(&cron.Spec, row, 0)
		traces.start(row, batch[i].Metadata)
	}
	ids, err := m.Inserter.InsertMany(ctx, tx, batch)
	if err != nil {
		return err
	}
	for i, id := range ids {
		rows[i].JobID = id
	}
	if err := cronstore.New(tx).SetOutcomes(ctx, rows); err != nil {
		return err
	}
	return jobstore.New(tx).NotifyAvailable(ctx, []string{cron.Spec.Queue})
}

// backfillBatch is the number of ticks that a backfill runs in one transaction. The
// leader waits for the cron's row during that transaction.
const backfillBatch = 100

// Backfill runs the ticks that BackfillTicks of cronstore returned, in transactions of
// bounded size. The transactions that have committed survive an interruption, and the
// same backfill can be run again to continue. Backfill returns the number of ticks that
// ran. It leaves out ticks that were recorded in the meantime. It calls progress, unless
// it is nil, after each transaction with the number of ticks done.
func (m Manual) Backfill(ctx context.Context, b cronstore.Backfill, by string, progress func(done int)) (int, error) {
	ran := 0
	for start := 0; start < len(b.Ticks); start += backfillBatch {
		end := min(start+backfillBatch, len(b.Ticks))
		n, err := m.backfill(ctx, b.Cron, b.Ticks[start:end], by)
		if err != nil {
			return ran, fmt.Errorf("backfill cron %s: %w", b.Cron, err)
		}
		ran += n
		if progress != nil {
			progress(end)
		}
	}
	return ran, nil
}

// backfill runs some ticks in one transaction.
func (m Manual) backfill(ctx context.Context, name string, ticks []time.Time, by string) (int, error) {
	var rows []cronstore.Tick
	traces := m.traces(ctx)
	err := pgx.BeginFunc(ctx, m.DB, func(tx pgx.Tx) error {
		cron, _, err := cronstore.New(tx).LockConfigured(ctx, name)
		if err != nil {
			return err
		}
		for _, at := range ticks {
			row, err := cronstore.New(tx).Claim(ctx, &cron, at, cronstore.Backfilled, "Backfilled by "+by)
			switch {
			case errors.Is(err, cronstore.ErrTaken):
			case err != nil:
				return err
			default:
				rows = append(rows, row)
			}
		}
		if len(rows) == 0 {
			return nil
		}
		if err := m.insert(ctx, tx, &cron, rows, traces); err != nil {
			return err
		}
		return eventstore.New(tx).Append(ctx, eventstore.Event{Type: eventstore.CronBackfilled}, map[string]any{
			"cron": name, "ticks": len(rows), "first": rows[0].Tick.UTC(), "last": rows[len(rows)-1].Tick.UTC(), "by": by,
		})
	})
	traces.finish(rows, err)
	return len(rows), err
}
