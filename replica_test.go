package forge

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/jobs"
)

// The first request may get no answer because its wait for a synchronous replica timed out.
// Its repetition finds the work done on the primary, and must still wait for the replica.
func TestRepeatedRequestWaitsForSynchronousReplica(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	pool := pgtest.Connect(t, server.URL())
	cfg := parsed(t, cronsOf("hourly"))
	inserter, err := jobs.NewInserter(pool, "")
	if err != nil {
		t.Fatal(err)
	}
	created := access.KeyedResponse{Status: 201, Body: []byte("{}")}
	requests := []struct {
		name string
		do   func(ctx context.Context) error
	}{
		{"apply", func(ctx context.Context) error {
			_, err := Apply(ctx, pool, cfg, false)
			return err
		}},
		{"pause a cron", func(ctx context.Context) error {
			_, _, err := cronstore.New(pool).Pause(ctx, "hourly", cronstore.PauseOrder{})
			return err
		}},
		{"enqueue a unique job", func(ctx context.Context) error {
			job := jobstore.NewJob{Kind: "hourly", Unique: "once"}
			_, err := jobs.NewEnqueuer(pool, inserter).Enqueue(ctx, job, true, "")
			return err
		}},
		{"enqueue a throttled job", func(ctx context.Context) error {
			job := jobstore.NewJob{Kind: "hourly", Unique: "seldom", Duplicates: config.Duplicates{Throttle: config.Duration(time.Hour)}}
			_, err := jobs.NewEnqueuer(pool, inserter).Enqueue(ctx, job, true, "")
			return err
		}},
		{"resume a queue", func(ctx context.Context) error {
			_, _, err := jobstore.New(pool).ResumeQueue(ctx, "default", jobstore.QueuePauseOrder{})
			return err
		}},
		{"an idempotency key", func(ctx context.Context) error {
			_, _, err := access.NewKeys(pool).Once(ctx, access.KeyedRequest{Key: "once"}, func(context.Context) access.KeyedResponse { return created })
			return err
		}},
		{"an idempotency key with work beside it", func(ctx context.Context) error {
			_, _, err := access.NewKeys(pool).OnceNonTx(ctx, access.KeyedRequest{Key: "apart"}, func(context.Context) access.KeyedResponse { return created })
			return err
		}},
	}
	for _, request := range requests {
		if err := request.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", request.name, err)
		}
	}
	server.MissReplica()
	for _, request := range requests {
		awaitAnswer(t, pool, "", `SELECT NOT (`+pgtest.ReplicaWaits+`)`, nil)
		ctx, giveUp := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- request.do(ctx) }()
		awaitAnswer(t, pool, request.name, pgtest.ReplicaWaits, ended)
		giveUp()
		if err := <-ended; err == nil {
			t.Errorf("%s: acknowledged without the replica", request.name)
		}
	}
}

// awaitAnswer waits until a statement is true, unless the request is answered first.
func awaitAnswer(t *testing.T, pool *pgxpool.Pool, name, sql string, answered chan error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var is bool
		if err := pool.QueryRow(t.Context(), sql).Scan(&is); err != nil {
			t.Fatal(err)
		}
		if is {
			return
		}
		select {
		case err := <-answered:
			answered <- err
			return
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not true in time: %s", name, sql)
		}
	}
}
