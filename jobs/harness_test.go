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
func startNode(t *testing.T, configured map[string]config.Job, change ...func(*jobs.Options)) *node {
	t.Helper()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	options := jobs.Options{
		Pool: pool, NodeID: nodeID, Incarnation: fmt.Sprintf("%016x", rand.Uint64()), Jobs: configured,
		Slots: 4, DrainTimeout: waitTimeout, ClusterURL: url, AllowPrivateTargets: true,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: metrics.New("test"),
	}
	for _, c := range change {
		c(&options)
	}
	exec(t, pool, `INSERT INTO forge_leaders (role, term) VALUES ('scheduler', $1)`, term)
	exec(t, pool, `INSERT INTO forge_nodes (node_id, incarnation) VALUES ($1, $2)`, options.NodeID, options.Incarnation)
	n := &node{pool: pool, metrics: options.Metrics, incarnation: options.Incarnation, credits: listen(t, url)}
	runner, err := jobs.New(options)
	if err != nil {
		t.Fatal(err)
	}
	n.Runner = runner
	n.run(t)
	// Two reports are sent before the listener is connected.
	n.wantCredit(t, func(c wire.Credit) bool { return c.Slots == options.Slots })
	n.awaitListening(t)
	return n
}

func (n *node) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	stopped := false
	n.stop = func() {
		t.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(2 * waitTimeout):
			t.Error("Run did not return")
		}
	}
	t.Cleanup(n.stop)
}

// awaitListening requests reports until one answers the last request. Later reports have
// another cause.
func (n *node) awaitListening(t *testing.T) {
	t.Helper()
	deadline := time.After(waitTimeout)
	for {
		seq := n.seq.Add(1)
		n.send(t, wire.Offer{Term: term, Seq: seq})
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
				t.Fatal("the node does not receive offers")
			}
		}
	}
}

func (n *node) send(t *testing.T, offer wire.Offer) {
	t.Helper()
	exec(t, n.pool, `SELECT pg_notify($1, $2)`, wire.OfferChannel("public", n.incarnation), wire.Marshal(offer))
}

// offer offers jobs of the default queue in the current term.
func (n *node) offer(t *testing.T, ids ...int64) {
	t.Helper()
	n.send(t, wire.Offer{Term: term, Seq: n.seq.Add(1), Jobs: map[string][]int64{"default": ids}})
}

// work inserts a job and offers it.
func (n *node) work(t *testing.T, job jobstore.NewJob) int64 {
	t.Helper()
	id, err := n.Insert(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	n.offer(t, id)
	return id
}

// finish waits until the job is in one of the states, and returns it. It offers the job
// again if a slow node has dropped the offer, as a leader does.
func (n *node) finish(t *testing.T, id int64, states ...string) jobstore.Job {
	t.Helper()
	var job jobstore.Job
	offered := time.Now()
	eventually(t, func() bool {
		var err error
		if job, err = jobstore.New(n.pool).Get(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		done := slices.Contains(states, job.State)
		if !done && job.State == "available" && time.Since(offered) > waitTimeout/6 {
			offered = time.Now()
			n.send(t, wire.Offer{Term: term, Seq: n.seq.Add(1), Jobs: map[string][]int64{job.Queue: {id}}})
		}
		return done
	}, func() string {
		text, _ := json.Marshal(job)
		return fmt.Sprintf("job never became %v: %s", states, text)
	})
	return job
}

func (n *node) logs(t *testing.T, id int64, attempt int, stream string) string {
	t.Helper()
	chunks, err := jobstore.New(n.pool).Logs(t.Context(), id, attempt, 0)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, chunk := range chunks {
		if chunk.Stream == stream {
			text += chunk.Chunk
		}
	}
	return text
}

func (n *node) wantCredit(t *testing.T, want func(wire.Credit) bool) wire.Credit {
	t.Helper()
	deadline := time.After(waitTimeout)
	var last wire.Credit
	for {
		select {
		case last = <-n.credits:
			if want(last) {
				return last
			}
		case <-deadline:
			t.Fatalf("the credit never came; the last one is %+v", last)
		}
	}
}

func listen(t *testing.T, url string) <-chan wire.Credit {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, `LISTEN "`+wire.Channel("public", wire.CreditChannel)+`"`); err != nil {
		t.Fatal(err)
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
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return credits
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// eventually polls until the condition is true.
func eventually(t *testing.T, condition func() bool, otherwise func() string) {
	t.Helper()
	deadline := time.Now().Add(waitTimeout)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatal(otherwise())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func shell(script string) config.Job {
	return config.Job{Kind: config.KindShell, Command: []string{"sh", "-c", script}}
}
