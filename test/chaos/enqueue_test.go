package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/test/chaos/checker"
	"github.com/forge-scheduler/forge/test/chaos/journal"
)

// enqueue adds jobs by hand and remembers those that were acknowledged.
func (r *run) enqueue(ctx context.Context) {
	for ctx.Err() == nil {
		r.enqueueOne(ctx, ackedJob)
		select {
		case <-ctx.Done():
		case <-time.After(enqueueEvery):
		}
	}
}

const tenantsSQL = `
SELECT id FROM forge_enqueue_many((
    SELECT jsonb_agg(jsonb_build_object('kind', $1::text, 'args', jsonb_build_object('tenant', tenant), 'priority', $3::integer))
    FROM unnest($2::text[]) AS tenant))`

func limitedTenants(int) (tenants []string, priority int) { return []string{"a", "a", "b"}, 1 }

// ratedTenants have more jobs of tenant a than its rate allows in every tenth round, from the
// first, and fewer in the others: in a long run, fewer than a rate allows that is not used
// while nobody leads. Jobs of later rounds go ahead of earlier ones, so that a leader that offers
// jobs again offers other ones.
func ratedTenants(round int) (tenants []string, priority int) {
	switch {
	case round%10 == 1:
		tenants = slices.Repeat([]string{"a"}, rateLimit+1)
	case round%2 == 0:
		tenants = []string{"a"}
	}
	return append(tenants, "b"), 4 - round%4
}

// enqueueTenants adds jobs of the tenants of each round. Some are refused because of what is done to
// the cluster.
func (r *run) enqueueTenants(ctx context.Context, kind string, each func(round int) (tenants []string, priority int)) {
	for round := 1; ctx.Err() == nil; round++ {
		tenants, priority := each(round)
		_, _ = r.enqueueBatch(ctx, kind, tenants, priority) // see above
		select {
		case <-ctx.Done():
		case <-time.After(tenantsEvery):
		}
	}
}

// enqueueBatch adds a job of each of the tenants, in one transaction, and remembers them if they were
// acknowledged.
func (r *run) enqueueBatch(ctx context.Context, kind string, tenants []string, priority int) ([]int64, error) {
	rows, _ := r.pool.Query(ctx, tenantsSQL, kind, tenants, priority)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked = append(r.acked, ids...)
	return ids, nil
}

// turnsReadySQL asks whether the fair queue has its index, without which it is read by priority
// and time.
const turnsReadySQL = `SELECT count(*) = $1 FROM pg_index WHERE indisvalid AND indexrelid::regclass::text ~ 'forge_fair_'`

// awaitTurns waits until the fair queues have their indexes.
func (r *run) awaitTurns(ctx context.Context) {
	for ready := false; !ready; {
		_ = r.pool.QueryRow(ctx, turnsReadySQL, fairQueues).Scan(&ready) // it may be down
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchEvery):
		}
	}
}

// enqueueTurns adds backlogs, and a job behind each.
func (r *run) enqueueTurns(ctx context.Context) {
	r.awaitTurns(ctx)
	for ctx.Err() == nil {
		_ = r.enqueueTurn(ctx, turnBacklog, turnMost) // as above
		select {
		case <-ctx.Done():
		case <-time.After(turnsEvery):
		}
	}
}

// enqueueTurn adds a backlog of a tenant and a job of another one behind it, before which most
// of the backlog may start.
func (r *run) enqueueTurn(ctx context.Context, backlog, most int) error {
	ids, err := r.enqueueBatch(ctx, turnJob, append(slices.Repeat([]string{"big"}, backlog), "small"), 1)
	if err != nil {
		return err
	}
	turn := checker.Turn{Job: ids[backlog], Kind: turnJob, Key: "small", Most: most}
	if err := r.pool.QueryRow(ctx, journal.LastSeqSQL).Scan(&turn.Seq); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns = append(r.turns, turn)
	return nil
}

// enqueueOne says whether a job was acknowledged, which it then remembers. One may be
// refused because of what is done to the cluster, and for nothing else.
func (r *run) enqueueOne(ctx context.Context, kind string) bool {
	var said bytes.Buffer
	cmd := r.command(ctx, "job", "enqueue", kind, "--config", r.config, "-o", "json")
	cmd.Stderr = &said
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if !r.mayRefuse(exit.ExitCode()) {
			r.Errorf("forge job enqueue %s: %v: %s", kind, err, said.String())
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.refused++
		return false
	}
	if err != nil {
		if ctx.Err() == nil {
			r.Errorf("forge job enqueue %s: %v", kind, err)
		}
		return false
	}
	var job struct{ ID int64 }
	if err := json.Unmarshal(out, &job); err != nil || job.ID == 0 {
		r.Errorf("forge job enqueue %s printed %q: %v", kind, out, err)
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked = append(r.acked, job.ID)
	if kind == poisonJob {
		r.poisoned = append(r.poisoned, job.ID)
	}
	return true
}
