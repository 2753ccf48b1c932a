package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/test/chaos/checker"
)

const (
	// When a row was committed is PostgreSQL's own knowledge, by the transaction that
	// wrote it.
	rowsSQL = `
SELECT cron, tick, coalesce(last_tick, '0001-01-01Z'), tick_count, verdict, reason, coalesce(job_id, 0), term, node_id,
       coalesce(pg_xact_commit_timestamp(xmin), recorded_at), xmin::text::bigint
FROM forge_cron_ticks WHERE tick < $1 ORDER BY cron, tick`

	// jobDue is when a job was due: the tick of a cron's job, or the creation.
	jobDue = `coalesce((metadata ->> 'forge:tick')::timestamptz, created_at)`

	jobsSQL = `
SELECT id, coalesce(metadata ->> 'forge:cron', ''), coalesce((metadata ->> 'forge:tick')::timestamptz, '0001-01-01Z'),
       state::text, attempt, coalesce(finalized_at, '0001-01-01Z'), coalesce(pg_xact_commit_timestamp(xmin), finalized_at, created_at), created_at
FROM river_job
WHERE kind <> ALL ($1) AND ` + jobDue + ` < $2
ORDER BY id`

	changesSQL    = `SELECT at, role, term, node_id, coalesce(renewed_at, '0001-01-01Z') FROM overload_leads ORDER BY id`
	watermarksSQL = `SELECT name, watermark FROM forge_crons`
)

// change is a change of a role's row: a new term, a renewal, or that it was vacated.
type change struct {
	at      time.Time
	role    string
	term    int64
	node    string // empty: it was vacated
	renewed time.Time
}

// record is one tick that stands in the ledger, by itself or in a row of several.
type record struct {
	due, at time.Time
	verdict string
	term    int64
}

// job is one that was inserted or fired in the run.
type job struct{ created, ended time.Time }

// past is what the database says of a run.
type past struct {
	history *checker.History
	changes []change
	records []record
	jobs    []job
}

// read takes in what happened until a moment. Of a cron whose ticks are not recorded
// up to there only the recorded part is judged: the others are late, which Judge sees.
func (c *cluster) read(ctx context.Context, until time.Time, acked []int64) (p past, err error) {
	tx, err := c.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return p, fmt.Errorf("read the history: %w", err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	p.history = &checker.History{Acked: acked, Unwitnessed: true}
	for _, read := range []func() error{
		func() error { return c.readLedger(ctx, tx, until, &p) },
		func() error { return c.readJobs(ctx, tx, until, &p) },
		func() error { return readChanges(ctx, tx, &p) },
		func() error { return c.readWatermarks(ctx, tx, until, &p) },
	} {
		if err := read(); err != nil {
			return p, fmt.Errorf("read the history: %w", err)
		}
	}
	number(p.history)
	return p, nil
}

func (c *cluster) readLedger(ctx context.Context, tx pgx.Tx, until time.Time, p *past) error {
	rows, err := tx.Query(ctx, rowsSQL, until)
	if err != nil {
		return err
	}
	var row checker.Row
	var at time.Time
	var txid int64
	columns := []any{&row.Cron, &row.Tick, &row.Last, &row.Count, &row.Verdict, &row.Reason, &row.JobID, &row.Term, &row.Node, &at, &txid}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		p.history.Rows = append(p.history.Rows, row)
		p.history.Entries = append(p.history.Entries, checker.Entry{
			At: at, Txid: txid, Cron: row.Cron, Tick: row.Tick, Verdict: row.Verdict, Term: row.Term, Node: row.Node,
		})
		for n := range row.Count {
			p.records = append(p.records, record{row.Tick.Add(time.Duration(n) * time.Second), at, row.Verdict, row.Term})
		}
		return nil
	})
	return err
}

func (c *cluster) readJobs(ctx context.Context, tx pgx.Tx, until time.Time, p *past) error {
	rows, err := tx.Query(ctx, jobsSQL, []string{completedKind, waitingKind}, until)
	if err != nil {
		return err
	}
	var found checker.Job
	var created time.Time
	columns := []any{&found.ID, &found.Cron, &found.Tick, &found.State, &found.Attempt, &found.Finalized, &found.Ended, &created}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		if found.Finalized.IsZero() {
			found.Ended = time.Time{}
		}
		p.history.Jobs = append(p.history.Jobs, found)
		p.jobs = append(p.jobs, job{created, found.Ended})
		return nil
	})
	return err
}

func readChanges(ctx context.Context, tx pgx.Tx, p *past) error {
	rows, err := tx.Query(ctx, changesSQL)
	if err != nil {
		return err
	}
	var c change
	before := map[string]checker.Lead{}
	_, err = pgx.ForEachRow(rows, []any{&c.at, &c.role, &c.term, &c.node, &c.renewed}, func() error {
		p.changes = append(p.changes, c)
		lead := checker.Lead{At: c.at, Role: c.role, Term: c.term, Node: c.node}
		if last := before[c.role]; last.Term != lead.Term || last.Node != lead.Node {
			p.history.Leads = append(p.history.Leads, lead)
		}
		before[c.role] = lead
		return nil
	})
	return err
}

func (c *cluster) readWatermarks(ctx context.Context, tx pgx.Tx, until time.Time, p *past) error {
	rows, err := tx.Query(ctx, watermarksSQL)
	if err != nil {
		return err
	}
	recorded := map[string]time.Time{}
	var name string
	var watermark time.Time
	if _, err := pgx.ForEachRow(rows, []any{&name, &watermark}, func() error {
		recorded[name] = watermark.Add(time.Microsecond)
		return nil
	}); err != nil {
		return err
	}
	for _, cron := range c.schedules {
		cron.Until = until
		if recorded[cron.Name].Before(until) {
			cron.Until = recorded[cron.Name]
		}
		p.history.Crons = append(p.history.Crons, cron)
	}
	return nil
}

// number gives leads and entries the order in which they happened.
func number(h *checker.History) {
	type numbered struct {
		at  time.Time
		seq *int64
	}
	var all []numbered
	for i := range h.Leads {
		all = append(all, numbered{h.Leads[i].At, &h.Leads[i].Seq})
	}
	for i := range h.Entries {
		all = append(all, numbered{h.Entries[i].At, &h.Entries[i].Seq})
	}
	slices.SortStableFunc(all, func(a, b numbered) int { return a.at.Compare(b.at) })
	for n, one := range all {
		*one.seq = int64(n + 1)
	}
	slices.SortFunc(h.Leads, func(a, b checker.Lead) int { return cmp.Compare(a.Seq, b.Seq) })
	slices.SortFunc(h.Entries, func(a, b checker.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
}
