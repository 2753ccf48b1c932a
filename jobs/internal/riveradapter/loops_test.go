package riveradapter

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/wire"
)

// ownExecutor lets forge's executor have all jobs, and returns those that it got.
func ownExecutor(p *Pilot) *[]*rivertype.JobRow {
	var got []*rivertype.JobRow
	p.start = func(claimed []Claimed) []Claimed {
		for _, c := range claimed {
			got = append(got, c.Job)
		}
		return nil
	}
	return &got
}

// exchange writes the results and claims the offered jobs, once each.
func (p *Pilot) exchange(ctx context.Context) error {
	return errors.Join(p.bounded(ctx, p.writeEnded), p.bounded(ctx, p.claimOffered))
}

// claimOwn claims jobs for forge's executor.
func claimOwn(t *testing.T, p *Pilot, got *[]*rivertype.JobRow, ids ...int64) []*rivertype.JobRow {
	t.Helper()
	*got = nil
	offer(p, 1, ids...)
	if err := p.exchange(t.Context()); err != nil || len(*got) != len(ids) {
		t.Fatalf("claimed %v of %v: %v", idsOf(*got), ids, err)
	}
	slices.SortFunc(*got, func(a, b *rivertype.JobRow) int { return int(a.ID - b.ID) })
	return *got
}

// The rows that a claim decodes by hand equal those that River reads.
func TestClaimDecodesRowsAsRiver(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	got := ownExecutor(p)
	ids := []int64{
		insert(t, p.pool, "available", []string{"other", ""}, `{"a":1}`), // with tags and errors
		insert(t, p.pool, "available", nil, `{}`),
	}
	plain := insert(t, p.pool, "available", nil, `{"b": "ü"}`)
	again := insert(t, p.pool, "available", []string{"other", "", "third"}, `{}`)
	unique := insert(t, p.pool, "available", nil, `{}`)
	exec(t, p.pool, `UPDATE river_job SET tags = '{}', errors = NULL, args = '{"n": [1, null]}' WHERE id = ANY ($1)`, []int64{plain, again, unique})
	exec(t, p.pool, `UPDATE river_job SET unique_key = 'k', unique_states = B'10000000' WHERE id = $1`, unique)
	for _, job := range claimOwn(t, p, got, append(ids, plain, again, unique)...) {
		want, err := riverpgxv5.New(p.pool).GetExecutor().JobGetByID(t.Context(), &riverdriver.JobGetByIDParams{ID: job.ID})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, job); diff != "" {
			t.Errorf("rows differ (-river +forge):\n%s", diff)
		}
	}
}

// A connection without binary formats, as behind some poolers, claims the same rows and
// writes their results.
func TestJobsRunInTextFormat(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	usePool(p, pgtest.ConnectBy(t, p.pool.Config().ConnString(), pgx.QueryExecModeExec))
	got := ownExecutor(p)
	id := insert(t, p.pool, "available", nil, `{"b": 1}`)
	job := claimOwn(t, p, got, id)[0]
	p.Ended(Result{Job: job, End: time.Now()})
	if err := p.exchange(t.Context()); err != nil || row(t, p.pool, id)["state"] != "completed" {
		t.Errorf("the job is %v: %v", row(t, p.pool, id)["state"], err)
	}
	if job.ID != id || string(job.Metadata) != `{"b": 1}` || job.AttemptedAt == nil || job.AttemptedBy[0] != clientID {
		t.Errorf("got %+v", job)
	}
}

// Plain and other results are written at once, and jobs of several queues are claimed at once.
func TestLoopsWriteAndClaim(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	p.buffer.resize(100, map[string]int{"default": 100, "other": 100}, nil)
	got := ownExecutor(p)
	ids := []int64{insert(t, p.pool, "available", nil, `{}`), insert(t, p.pool, "available", nil, `{}`)}
	claimed := claimOwn(t, p, got, ids...)
	next := []int64{insert(t, p.pool, "available", nil, `{}`), insert(t, p.pool, "available", nil, `{}`)}
	exec(t, p.pool, `UPDATE river_job SET queue = 'other' WHERE id = $1`, next[1])
	now := time.Now()
	p.Ended(Result{Job: claimed[0], End: now})
	p.Ended(Result{Job: claimed[1], End: now, Params: riverdriver.JobSetStateDiscarded(ids[1], now, []byte(`{"error":"boom"}`), []byte(`{"x":1}`))})
	p.buffer.add(wire.Offer{Term: 1, Seq: 2, Jobs: map[string][]int64{"default": next[:1], "other": next[1:]}}, now)
	*got = nil
	if err := p.exchange(t.Context()); err != nil || !slices.Equal(idsOf(*got), next) {
		t.Fatalf("claimed %v of %v: %v", idsOf(*got), next, err)
	}
	if row(t, p.pool, ids[0])["state"] != "completed" || row(t, p.pool, ids[1])["state"] != "discarded" {
		t.Errorf("states are %v and %v", row(t, p.pool, ids[0])["state"], row(t, p.pool, ids[1])["state"])
	}
	if own := p.buffer.ownIDs(); len(own) != 2 || p.Running() != 2 {
		t.Errorf("own %v, %d run", own, p.Running())
	}
}

// If the replies of the database are lost, results are not acknowledged, and claims are
// found again. The results are then written or found written.
func TestLostRepliesAreRecovered(t *testing.T) {
	t.Parallel()
	for name, executed := range map[string]bool{"executed": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPilot(t)
			got := ownExecutor(p)
			direct := p.pool
			link := throughLink(t, p, p.pool.Config().ConnString())
			endBoth(t, p, claimOwn(t, p, got, insert(t, direct, "available", nil, `{}`), insert(t, direct, "available", nil, `{}`)))
			if err := p.exchange(t.Context()); err != nil { // the statements are prepared now
				t.Fatal(err)
			}
			endBoth(t, p, claimOwn(t, p, got, insert(t, direct, "available", nil, `{}`), insert(t, direct, "available", nil, `{}`)))
			withoutReply(t, p, link, direct, executed, p.writeEnded, `SELECT count(*) = 4 FROM river_job WHERE state = 'completed'`)
			if own := p.buffer.ownIDs(); len(own) != 2 || p.pending.unwritten() != 2 {
				t.Errorf("unacknowledged are %v, %d results are kept", own, p.pending.unwritten())
			}
			for deadline := time.Now().Add(time.Minute); p.pending.unwritten() > 0 && time.Now().Before(deadline); {
				_ = p.rewrite(t.Context(), p.pending.takeRetries())
			}
			awaitTrue(t, direct, `SELECT count(*) = 4 FROM river_job WHERE state = 'completed'`)
			if own := p.buffer.ownIDs(); len(own) != 0 {
				t.Errorf("kept %v", own)
			}
			claimOwn(t, p, got, insert(t, direct, "available", nil, `{}`))
			next := insert(t, direct, "available", nil, `{}`)
			offer(p, 2, next)
			*got = nil
			withoutReply(t, p, link, direct, executed, p.claimOffered, `SELECT count(*) = 2 FROM river_job WHERE state = 'running'`)
			for deadline := time.Now().Add(time.Minute); len(*got) == 0 && time.Now().Before(deadline); {
				if !executed {
					offer(p, 3, next) // the first was dropped with its claim
				}
				_ = p.exchange(t.Context())
			}
			if !slices.Equal(idsOf(*got), []int64{next}) {
				t.Errorf("claimed %v, want %d", idsOf(*got), next)
			}
		})
	}
}

// withoutReply calls do, whose statements are lost, or are executed without a reply.
func withoutReply(t *testing.T, p *Pilot, link *pgtest.Link, direct *pgxpool.Pool, executed bool, do func(context.Context) error, effect string) {
	t.Helper()
	if executed {
		link.StallReplies()
	} else {
		link.Stall()
	}
	if err := p.bounded(t.Context(), do); err == nil {
		t.Fatal("the statements got an answer")
	}
	link.Cut()
	if executed {
		awaitTrue(t, direct, effect)
	}
	link.Resume()
}

// A result that the server rejects does not keep a job from being claimed.
func TestRejectedResultDoesNotAffectClaims(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	got := ownExecutor(p)
	ended := claimOwn(t, p, got, insert(t, p.pool, "available", nil, `{}`))[0]
	refuse(t, p, "completed")
	next := insert(t, p.pool, "available", nil, `{}`)
	p.Ended(Result{Job: ended, End: time.Now()})
	offer(p, 2, next)
	if err := p.exchange(t.Context()); err == nil || p.buffer.hasOffers() || p.pending.unwritten() != 1 {
		t.Errorf("got %v, offers or uncertain claims %t, %d unwritten", err, p.buffer.hasOffers(), p.pending.unwritten())
	}
	if last := (*got)[len(*got)-1]; last.ID != next {
		t.Errorf("claimed %d last, want %d", last.ID, next)
	}
}

// A claim that the server rejects is neither uncertain nor kept.
func TestRejectedClaimIsReleased(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	got := ownExecutor(p)
	id := insert(t, p.pool, "available", nil, `{}`)
	refuse(t, p, "running")
	offer(p, 1, id)
	if err := p.exchange(t.Context()); err == nil || p.buffer.hasOffers() || p.Running() != 0 {
		t.Errorf("got %v, offers or uncertain claims %t, %d run", err, p.buffer.hasOffers(), p.Running())
	}
	exec(t, p.pool, `DROP TRIGGER refuse ON river_job`)
	claimOwn(t, p, got, id)
}

// refuse lets the server reject each change of a job to a state.
func refuse(t *testing.T, p *Pilot, state string) {
	t.Helper()
	exec(t, p.pool, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$`)
	exec(t, p.pool, `CREATE TRIGGER refuse BEFORE UPDATE ON river_job FOR EACH ROW WHEN (new.state = '`+state+`') EXECUTE FUNCTION refuse()`)
}

// While another transaction has locked the row of a job that has ended, the node claims jobs,
// and writes the results of all others.
func TestLockedRowDelaysOnlyItsResult(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	got := ownExecutor(p)
	const jobs = 20
	var ids []int64
	for range jobs {
		ids = append(ids, insert(t, p.pool, "available", nil, `{}`))
	}
	claimed := claimOwn(t, p, got, ids...)
	p.claimTimeout = time.Hour
	lock, err := p.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(t.Context()) }()
	if _, err := lock.Exec(t.Context(), `SELECT FROM river_job WHERE id = $1 FOR UPDATE`, ids[jobs/3]); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); p.Work(ctx) }()
	defer func() { stop(); <-stopped }()

	now := time.Now()
	for i, job := range claimed {
		result := Result{Job: job, End: now}
		if i%2 == 0 {
			result.Params = riverdriver.JobSetStateCompleted(job.ID, now, []byte(`{"x":1}`))
		}
		p.Ended(result)
	}
	offer(p, 2, insert(t, p.pool, "available", nil, `{}`))
	awaitTrue(t, p.pool, `SELECT count(*) = 2 FROM river_job WHERE state = 'running'`)
	awaitTrue(t, p.pool, `SELECT count(*) = 19 FROM river_job WHERE state = 'completed'`)
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, p.pool, `SELECT count(*) = 20 FROM river_job WHERE state = 'completed'`)
}

// While another transaction has locked the row of an offered job, with a limit or without, the
// node claims the jobs that were offered with it.
func TestLockedRowDelaysOnlyItsClaim(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	got := ownExecutor(p)
	limit(t, p.pool, jobstore.Limit{Scope: jobstore.ScopeJob, Name: "limited", Most: 10})
	free := []int64{insert(t, p.pool, "available", nil, `{}`), insert(t, p.pool, "available", nil, `{}`), insert(t, p.pool, "available", nil, `{}`)}
	limited := insertKind(t, p.pool, "limited", 3)
	lock, err := p.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(t.Context()) }()
	if _, err := lock.Exec(t.Context(), `SELECT FROM river_job WHERE id = ANY ($1) FOR UPDATE`, []int64{free[1], limited[1]}); err != nil {
		t.Fatal(err)
	}
	offer(p, 1, free...)
	p.buffer.add(wire.Offer{Term: 1, Seq: 2, Limited: true, Jobs: map[string][]int64{"default": limited}}, time.Now())
	if err := p.exchange(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{free[0], free[2], limited[0], limited[2]}, idsOf(*got)); diff != "" {
		t.Errorf("claimed jobs (-want +got):\n%s", diff)
	}
	if p.buffer.hasOffers() {
		t.Error("the locked jobs stay offered or uncertain")
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	*got = nil
	offer(p, 3, free[1])
	p.buffer.add(wire.Offer{Term: 1, Seq: 4, Limited: true, Jobs: map[string][]int64{"default": limited[1:2]}}, time.Now())
	if err := p.exchange(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{free[1], limited[1]}, idsOf(*got)); diff != "" {
		t.Errorf("then claimed jobs (-want +got):\n%s", diff)
	}
}

// While very many results are not written, the node claims no more jobs.
func TestUnacknowledgedResultsStopClaims(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	got := ownExecutor(p)
	p.buffer.resize(1, map[string]int{"default": 1}, nil)
	for i := range maxPage + 2 {
		id := int64(1)<<40 + int64(i)
		p.buffer.own[id] = ownJob{row: &rivertype.JobRow{ID: id}, ended: true}
	}
	id := insert(t, p.pool, "available", nil, `{}`)
	offer(p, 1, id)
	if err := p.exchange(t.Context()); err != nil || len(*got) != 0 {
		t.Errorf("claimed %v, %v", idsOf(*got), err)
	}
	p.buffer.acknowledged([]int64{1 << 40})
	if err := p.exchange(t.Context()); err != nil || len(*got) != 1 {
		t.Errorf("claimed %v, %v afterwards", idsOf(*got), err)
	}
}

// endBoth ends two attempts: one plainly, one with metadata.
func endBoth(t *testing.T, p *Pilot, claimed []*rivertype.JobRow) {
	t.Helper()
	now := time.Now()
	p.Ended(Result{Job: claimed[0], End: now})
	p.Ended(Result{Job: claimed[1], End: now, Params: riverdriver.JobSetStateCompleted(claimed[1].ID, now, []byte(`{"x":1}`))})
}

// pilotWithReplica returns a pilot on a server with a synchronous replica, and the jobs that it
// starts on forge's executor.
func pilotWithReplica(t *testing.T) (p *Pilot, replica *pgtest.OwnServer, started *[]*rivertype.JobRow) {
	t.Helper()
	server := pgtest.Server(t)
	replica = server.Replica()
	p = pilotOn(t, server.URL())
	return p, replica, ownExecutor(p)
}

// cancelWait cancels a write while it waits for a synchronous replica, and returns its error.
func cancelWait(t *testing.T, p *Pilot, write func(context.Context) error) error {
	t.Helper()
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	failed := make(chan error, 1)
	go func() { failed <- write(ctx) }()
	awaitOr(t, p.pool, failed, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')`)
	giveUp()
	return <-failed
}

// A result whose wait for a synchronous replica was cancelled is not acknowledged until a
// replica has it.
func TestResultWaitsForReplica(t *testing.T) {
	t.Parallel()
	p, replica, got := pilotWithReplica(t)
	endBoth(t, p, claimOwn(t, p, got, insert(t, p.pool, "available", nil, `{}`), insert(t, p.pool, "available", nil, `{}`)))

	replica.Stop(devcluster.StopFast)
	write := p.exchange
	for range 2 { // the second call finds the results written
		if err := cancelWait(t, p, write); err == nil {
			t.Fatal("a result without a replica was acknowledged")
		}
		awaitTrue(t, p.pool, `SELECT bool_and(state = 'completed') FROM river_job`)
		if own := p.buffer.ownIDs(); len(own) != 2 {
			t.Fatalf("unacknowledged are %v", own)
		}
		write = func(ctx context.Context) error { return p.rewrite(ctx, p.pending.takeRetries()) }
	}
	replica.Start()
	if err := write(t.Context()); err != nil || len(p.buffer.ownIDs()) != 0 {
		t.Errorf("got %v, kept %v", err, p.buffer.ownIDs())
	}
}

// A primary that was replaced while it was frozen does not have the newest jobs, and no replica
// confirms that. Their results are kept.
func TestResultOfMissingJobIsConfirmed(t *testing.T) {
	t.Parallel()
	p, replica, got := pilotWithReplica(t)
	claimed := claimOwn(t, p, got, insert(t, p.pool, "available", nil, `{}`))
	exec(t, p.pool, `DELETE FROM river_job`)
	p.Ended(Result{Job: claimed[0], End: time.Now()})
	replica.Stop(devcluster.StopFast)
	if err := cancelWait(t, p, p.exchange); err == nil || len(p.buffer.ownIDs()) != 1 {
		t.Errorf("got %v, kept %v", err, p.buffer.ownIDs())
	}
}

// A late or stale result is rejected and not kept.
func TestStaleResultsAreRejected(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	refused := 0
	p.fenced = func(string) { refused++ }
	got := ownExecutor(p)
	ids := []int64{insert(t, p.pool, "available", nil, `{}`), insert(t, p.pool, "available", nil, `{}`)}
	claimed := claimOwn(t, p, got, ids...)
	exec(t, p.pool, `UPDATE river_job SET attempted_at = now() WHERE id = $1`, ids[0])                               // its next attempt
	exec(t, p.pool, `UPDATE river_job SET attempted_by = array_append(attempted_by, 'other') WHERE id = $1`, ids[1]) // another node's
	now := time.Now()
	p.Ended(Result{Job: claimed[0], End: now})
	p.Ended(Result{Job: claimed[1], End: now, Params: riverdriver.JobSetStateCompleted(ids[1], now, []byte(`{"x":1}`))})
	if err := p.exchange(t.Context()); err != nil || refused != 2 || len(p.buffer.ownIDs()) != 0 {
		t.Errorf("got %v, %d refused, kept %v", err, refused, p.buffer.ownIDs())
	}
	for _, id := range ids {
		if got := row(t, p.pool, id); got["state"] != "running" {
			t.Errorf("job %d is %v", id, got["state"])
		}
	}
}

// While many results cannot be written, the node claims no more jobs.
func TestUnwrittenResultsStopClaims(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	p.buffer.resize(1, map[string]int{"default": 1}, nil)
	got := ownExecutor(p)
	for range 2 {
		p.pending.retry([]Result{{Job: &rivertype.JobRow{ID: 1 << 40}}})
	}
	id := insert(t, p.pool, "available", nil, `{}`)
	offer(p, 1, id)
	if err := p.exchange(t.Context()); err != nil || len(*got) != 0 {
		t.Errorf("claimed %v, %v", idsOf(*got), err)
	}
	p.pending.takeRetries()
	if err := p.exchange(t.Context()); err != nil || len(*got) != 1 {
		t.Errorf("claimed %v, %v afterwards", idsOf(*got), err)
	}
}

// River gets one result of a job at a time. A job that River would run waits for it.
func TestAnnouncementsOfOneJobDoNotOverlap(t *testing.T) {
	t.Parallel()
	a := newAnnouncements()
	a.open = true
	first, second := &rivertype.JobRow{ID: 1, Attempt: 1}, &rivertype.JobRow{ID: 1, Attempt: 2}
	a.add([]Announcement{{Job: first, Err: errFailed}, {Job: second}, {Job: &rivertype.JobRow{ID: 2}}})
	page, _ := a.next()
	if len(page) != 2 || page[0].Job != first || page[1].Job.ID != 2 {
		t.Fatalf("the first page is %v", page)
	}
	third := Claimed{Job: &rivertype.JobRow{ID: 1, Attempt: 3}}
	if !a.hold(third) || a.hold(Claimed{Job: &rivertype.JobRow{ID: 3}}) {
		t.Error("the wrong job waits")
	}
	marked := []byte(`{"forge:announced":true}`)
	params := many(riverdriver.JobSetStateCompleted(1, noon, marked), riverdriver.JobSetStateCompleted(4, noon, nil))
	rows, rest := a.split(params)
	if len(rows) != 1 || rows[0] != first || !slices.Equal(rest.ID, []int64{4}) {
		t.Errorf("announced %v, to write %v", rows, rest.ID)
	}
	if released := a.done(rows); len(released) != 0 {
		t.Errorf("released %v before the second result", released)
	}
	if page, _ = a.next(); len(page) != 1 || page[0].Job != second {
		t.Fatalf("the second page is %v", page)
	}
	if released := a.done([]*rivertype.JobRow{second}); len(released) != 1 || released[0].Job != third.Job {
		t.Errorf("released %v", released)
	}
	a.add(make([]Announcement, 2*maxAnnounced))
	if len(a.pending) != maxAnnounced {
		t.Errorf("%d wait, the limit is %d", len(a.pending), maxAnnounced)
	}
}

// Each reason of River has an error from which River finds it again.
func TestReasonsOfResults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		params *riverdriver.JobSetStateIfRunningParams
		is     func(error) bool
	}{
		"plain":       {nil, func(err error) bool { return err == nil }},
		"completed":   {riverdriver.JobSetStateCompleted(1, noon, nil), func(err error) bool { return err == nil }},
		"failed":      {riverdriver.JobSetStateDiscarded(1, noon, nil, nil), func(err error) bool { return errors.Is(err, errFailed) }},
		"cancelled":   {riverdriver.JobSetStateCancelled(1, noon, nil, nil), func(err error) bool { return errors.Is(err, rivertype.ErrJobCancelledRemotely) }},
		"interrupted": {riverdriver.JobSetStateInterrupted(1, noon, 0, nil), func(err error) bool { return errors.Is(err, context.Canceled) }},
		"snoozed": {riverdriver.JobSetStateSnoozed(1, noon, 0, nil), func(err error) bool {
			_, ok := errors.AsType[*rivertype.JobSnoozeError](err)
			return ok
		}},
	} {
		result := Result{Params: test.params}
		if err := result.reason(); !test.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
