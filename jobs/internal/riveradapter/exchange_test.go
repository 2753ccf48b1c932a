package riveradapter

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/devcluster"
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

// The rows that an exchange decodes by hand equal those that River reads.
func TestExchangeDecodesRowsAsRiver(t *testing.T) {
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

// An exchange over a connection without binary formats, as behind some poolers, decodes
// the same rows.
func TestExchangeDecodesTextFormat(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	config := p.pool.Config().Copy()
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	usePool(p, pgtest.Connect(t, config.ConnString()+"&default_query_exec_mode=exec"))
	got := ownExecutor(p)
	id := insert(t, p.pool, "available", nil, `{"b": 1}`)
	job := claimOwn(t, p, got, id)[0]
	if job.ID != id || string(job.Metadata) != `{"b": 1}` || job.AttemptedAt == nil || job.AttemptedBy[0] != clientID {
		t.Errorf("got %+v", job)
	}
}

// One exchange writes plain and other results, and claims jobs of several queues.
func TestExchangeWritesAndClaims(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	p.buffer.resize(100, map[string]int{"default": 100, "other": 100})
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

// If the reply to an exchange is lost, its results are not acknowledged, and its claims are
// found again. The results are then written or found written.
func TestLostReplyOfExchangeIsRecovered(t *testing.T) {
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
			next := insert(t, direct, "available", nil, `{}`)
			offer(p, 2, next)
			if executed {
				link.StallReplies()
			} else {
				link.Stall()
			}
			*got = nil
			if err := p.exchange(t.Context()); err == nil {
				t.Fatal("the exchange got an answer")
			}
			if executed {
				awaitTrue(t, direct, `SELECT count(*) = 4 FROM river_job WHERE state = 'completed'`)
			}
			link.Cut()
			link.Resume()
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

// A result that the server rejects does not keep the claims of its exchange uncertain.
func TestRejectedResultReleasesClaims(t *testing.T) {
	t.Parallel()
	p := newPilot(t)
	got := ownExecutor(p)
	ended := claimOwn(t, p, got, insert(t, p.pool, "available", nil, `{}`))[0]
	exec(t, p.pool, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$`)
	exec(t, p.pool, `CREATE TRIGGER refuse BEFORE UPDATE ON river_job FOR EACH ROW WHEN (new.state = 'completed') EXECUTE FUNCTION refuse()`)
	next := insert(t, p.pool, "available", nil, `{}`)
	p.Ended(Result{Job: ended, End: time.Now()})
	offer(p, 2, next)
	if err := p.exchange(t.Context()); err == nil || p.buffer.hasOffers() || p.pending.unwritten() != 1 {
		t.Errorf("got %v, offers or uncertain claims %t, %d unwritten", err, p.buffer.hasOffers(), p.pending.unwritten())
	}
	claimOwn(t, p, got, next) // the next exchange has no result
}

// endBoth ends two attempts: one plainly, one with metadata.
func endBoth(t *testing.T, p *Pilot, claimed []*rivertype.JobRow) {
	t.Helper()
	now := time.Now()
	p.Ended(Result{Job: claimed[0], End: now})
	p.Ended(Result{Job: claimed[1], End: now, Params: riverdriver.JobSetStateCompleted(claimed[1].ID, now, []byte(`{"x":1}`))})
}

// A result whose wait for a synchronous replica was cancelled is not acknowledged until a
// replica has it.
func TestExchangeWaitsForReplica(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	replica := server.Replica()
	p := pilotOn(t, server.URL())
	got := ownExecutor(p)
	ids := []int64{insert(t, p.pool, "available", nil, `{}`), insert(t, p.pool, "available", nil, `{}`)}
	claimed := claimOwn(t, p, got, ids...)
	now := time.Now()
	p.Ended(Result{Job: claimed[0], End: now})
	p.Ended(Result{Job: claimed[1], End: now, Params: riverdriver.JobSetStateCompleted(ids[1], now, []byte(`{"x":1}`))})

	replica.Stop(devcluster.StopFast)
	write := p.exchange
	for range 2 { // the second call finds the results written
		ctx, giveUp := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { failed <- write(ctx) }()
		awaitOr(t, p.pool, failed, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')`)
		giveUp()
		if err := <-failed; err == nil {
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

// A late or stale result is rejected and not kept.
func TestExchangeRejectsStaleResults(t *testing.T) {
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
	p.buffer.resize(1, map[string]int{"default": 1})
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
