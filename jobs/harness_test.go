package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/jobs"
)

const (
	waitTimeout = time.Minute
	term        = 7
	nodeID      = "node-a"
)

// node is a running Runner. The test acts as the scheduler's leader.
type node struct {
	*jobs.Runner
	pool        *pgxpool.Pool
	metrics     *metrics.Metrics
	incarnation string
	credits     <-chan wire.Credit
	// stop ends the node's context and waits for Run.
	stop func()
	seq  atomic.Int64
}

// startNode starts a node with these jobs and waits until it listens.
func startNode(tb testing.TB, configured map[string]config.Job, change ...func(*jobs.Options)) *node {
	tb.Helper()
	url := pgtest.URL(tb)
	pool := pgtest.Connect(tb, url)
	options := jobs.Options{
		Pool: pool, NodeID: nodeID, Incarnation: fmt.Sprintf("%016x", rand.Uint64()), Jobs: configured,
		Slots: 4, DrainTimeout: waitTimeout, ClusterURL: url, AllowPrivateTargets: true,
		Logger: slog.New(slog.NewTextHandler(tb.Output(), nil)), Metrics: metrics.New("test"),
	}
	for _, c := range change {
		c(&options)
	}
	exec(tb, pool, `INSERT INTO forge_leaders (role, term) VALUES ('scheduler', $1)`, term)
	exec(tb, pool, `INSERT INTO forge_nodes (node_id, incarnation) VALUES ($1, $2)`, options.NodeID, options.Incarnation)
	n := &node{pool: pool, metrics: options.Metrics, incarnation: options.Incarnation, credits: listen(tb, url)}
	runner, err := jobs.New(options)
	if err != nil {
		tb.Fatal(err)
	}
	n.Runner = runner
	n.run(tb)
	// Two reports are sent before the listener is connected.
	n.wantCredit(tb, func(c wire.Credit) bool { return c.Slots == options.Slots })
	n.awaitListening(tb)
	return n
}

func (n *node) run(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	stopped := false
	n.stop = func() {
		tb.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				tb.Errorf("Run: %v", err)
			}
		case <-time.After(2 * waitTimeout):
			tb.Error("Run did not return")
		}
	}
	tb.Cleanup(n.stop)
}

// awaitListening requests reports until one answers the last request. Later reports have
// another cause.
func (n *node) awaitListening(tb testing.TB) {
	tb.Helper()
	deadline := time.After(waitTimeout)
	for {
		seq := n.seq.Add(1)
		n.send(tb, wire.Offer{Term: term, Seq: seq})
		next := time.After(50 * time.Millisecond)
	wait:
		for {
			select {
			case credit := <-n.credits:
				if credit.Seen == seq {
					return
				}
			case <-next:
				break wait
			case <-deadline:
				tb.Fatal("the node does not receive offers")
			}
		}
	}
}

func (n *node) send(tb testing.TB, offer wire.Offer) {
	tb.Helper()
	exec(tb, n.pool, `SELECT pg_notify($1, $2)`, wire.OfferChannel("public", n.incarnation), wire.Marshal(offer))
}

// offer offers jobs of the default queue in the current term.
func (n *node) offer(tb testing.TB, ids ...int64) {
	tb.Helper()
	n.send(tb, wire.Offer{Term: term, Seq: n.seq.Add(1), Jobs: map[string][]int64{"default": ids}})
}

// work inserts a job and offers it.
func (n *node) work(tb testing.TB, job jobstore.NewJob) int64 {
	tb.Helper()
	id, err := n.Insert(tb.Context(), job)
	if err != nil {
		tb.Fatal(err)
	}
	n.offer(tb, id)
	return id
}

// finish waits until the job is in one of the states, and returns it. It offers the job
// again if a slow node has dropped the offer, as a leader does.
func (n *node) finish(tb testing.TB, id int64, states ...string) jobstore.Job {
	tb.Helper()
	var job jobstore.Job
	offered := time.Now()
	eventually(tb, func() bool {
		var err error
		if job, err = jobstore.New(n.pool).Get(tb.Context(), id); err != nil {
			tb.Fatal(err)
		}
		done := slices.Contains(states, job.State)
		if !done && job.State == "available" && time.Since(offered) > waitTimeout/6 {
			offered = time.Now()
			n.send(tb, wire.Offer{Term: term, Seq: n.seq.Add(1), Jobs: map[string][]int64{job.Queue: {id}}})
		}
		return done
	}, func() string {
		text, _ := json.Marshal(job)
		return fmt.Sprintf("job never became %v: %s", states, text)
	})
	return job
}

func (n *node) logs(tb testing.TB, id int64, attempt int, stream string) string {
	tb.Helper()
	chunks, err := jobstore.New(n.pool).Logs(tb.Context(), id, attempt, 0)
	if err != nil {
		tb.Fatal(err)
	}
	text := ""
	for _, chunk := range chunks {
		if chunk.Stream == stream {
			text += chunk.Chunk
		}
	}
	return text
}

func (n *node) wantCredit(tb testing.TB, want func(wire.Credit) bool) wire.Credit {
	tb.Helper()
	deadline := time.After(waitTimeout)
	var last wire.Credit
	for {
		select {
		case last = <-n.credits:
			if want(last) {
				return last
			}
		case <-deadline:
			tb.Fatalf("the credit never came; the last one is %+v", last)
		}
	}
}

func listen(tb testing.TB, url string) <-chan wire.Credit {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := conn.Exec(ctx, `LISTEN "`+wire.Channel("public", wire.CreditChannel)+`"`); err != nil {
		tb.Fatal(err)
	}
	credits, done := make(chan wire.Credit, 1000), make(chan struct{})
	go func() {
		defer close(done)
		for {
			notification, err := conn.WaitForNotification(ctx)
			if err != nil {
				_ = conn.Close(context.WithoutCancel(ctx))
				return
			}
			if credit, err := wire.Unmarshal[wire.Credit](notification.Payload); err == nil {
				select {
				case credits <- credit:
				case <-ctx.Done(): // the test has left many reports unread
				}
			}
		}
	}()
	tb.Cleanup(func() {
		cancel()
		<-done
	})
	return credits
}

func exec(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// eventually polls until the condition is true.
func eventually(tb testing.TB, condition func() bool, otherwise func() string) {
	tb.Helper()
	deadline := time.Now().Add(waitTimeout)
	for !condition() {
		if time.Now().After(deadline) {
			tb.Fatal(otherwise())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func shell(script string) config.Job {
	return config.Job{Kind: config.KindShell, Command: []string{"sh", "-c", script}}
}
