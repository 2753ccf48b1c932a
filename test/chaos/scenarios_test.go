package chaos

import (
	"context"
	"errors"
	"fmt"
	"html"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/chaos/checker"
	"github.com/forge-scheduler/forge/test/nodes"
	"github.com/forge-scheduler/forge/test/parts"
)

// What does not fit beside other faults has a run of its own, judged by the same
// checker.

// connectionLost stands for the code of an error that the server did not send.
const connectionLost = "08006"

// diskMegabytes hold a new server and what a run writes.
const diskMegabytes = 192

// endless is longer than any scenario; its crons are ended by hand.
const endless = 2 * time.Hour

// scenario is what one of them has to do.
type scenario []kind

var (
	fullDisk     = scenario{diskFull, noLog}
	leapingClock = scenario{clockLeap}
	promotion    = scenario{promoted}
	lostPackets  = scenario{packetsLost, repliesLost}
	strangers    = scenario{strangeTerm, rowMissing}

	scenarios = []scenario{fullDisk, leapingClock, promotion, lostPackets, strangers}
)

// endure has a cluster suffer one thing while its crons fire and jobs are enqueued,
// and judges what came of it.
func (r *run) endure(s scenario, suffer func()) *checker.History {
	r.Helper()
	r.begin(endless, 0)
	ctx, cancel := context.WithCancel(r.Context())
	var helpers sync.WaitGroup
	helpers.Go(func() { r.enqueue(ctx) })
	suffer()
	r.demandDone(s)
	r.awaitTicks(2)
	cancel()
	helpers.Wait()
	r.endCrons()
	h, _ := r.judge()
	if len(h.Acked) == 0 {
		r.Error("no job was acknowledged")
	}
	return h
}

// endCrons has the crons end at once, and notes when that was.
func (r *run) endCrons() {
	r.Helper()
	for i := range r.crons {
		r.crons[i].Until = r.crons[i].Since
	}
	r.text = r.file()
	r.writeFile()
	r.eventually("the crons end", func() bool {
		out, err := r.command(r.Context(), "apply", "--config", r.config).CombinedOutput()
		if err != nil {
			r.Logf("forge apply: %v: %s", err, out)
		}
		return err == nil
	})
	for i := range r.crons {
		if err := r.pool.QueryRow(r.Context(), endedSQL, r.crons[i].Name).Scan(&r.crons[i].Until); err != nil {
			r.Fatal(err)
		}
	}
}

// eventually waits for something to be true.
func (r *run) eventually(what string, isTrue func() bool) {
	r.Helper()
	for deadline := time.Now().Add(waitTimeout); !isTrue(); time.Sleep(watchEvery) {
		if time.Now().After(deadline) {
			r.Fatalf("after %s still not: %s", waitTimeout, what)
		}
	}
}

const (
	endedSQL = `SELECT updated_at FROM forge_crons WHERE name = $1`
	firedSQL = `SELECT count(*) FROM chaos_entries WHERE cron = 'pulse' AND verdict = 'fired'`
	// writeSQL writes what does not fit into pages that are there.
	writeSQL  = `DROP TABLE IF EXISTS chaos_filler; CREATE TABLE chaos_filler AS SELECT repeat(md5(n::text), 20) FROM generate_series(1, 1000) n`
	switchSQL = `SELECT pg_switch_wal() FROM (SELECT txid_current()) t`

	addressesSQL = `SELECT node_id, api_url FROM forge_nodes`
)

// awaitTicks waits until so many ticks more have fired.
func (r *run) awaitTicks(more int) {
	r.Helper()
	fired := func() (n int) {
		if err := r.pool.QueryRow(r.Context(), firedSQL).Scan(&n); err != nil {
			return 0
		}
		return n
	}
	before := 0
	r.eventually("ticks fire", func() bool {
		if before == 0 {
			before = fired()
			return false
		}
		return fired() >= before+more
	})
}

// awaitReplicated waits until the replica has the last renewals of all leaders and none is
// due within a tenth of a second. The replica is asynchronous: a renewal that it has not
// received is missing from the history after a promotion, although the prober has seen it.
func (r *run) awaitReplicated(url string) {
	r.Helper()
	replica := pgtest.Connect(r, url)
	const ageSQL = `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - renewed_at)), 0)::float8
FROM forge_leaders WHERE node_id IS NOT NULL`
	r.eventually("the replica has the last renewals", func() bool {
		var seconds float64
		err := replica.QueryRow(r.Context(), ageSQL).Scan(&seconds)
		return err == nil && seconds > 0 && time.Duration(seconds*float64(time.Second)) < lease/4-lease/30
	})
}

// awaitAnswers waits until each node has answered a request with the code and the text.
// before is called ahead of each round of requests.
func (r *run) awaitAnswers(path string, code int, text string, before func()) {
	r.Helper()
	waiting := slices.Clone(nodeNames)
	r.eventually(fmt.Sprintf("GET %s is answered %d with %q by every node", path, code, text), func() bool {
		before()
		answers := r.answers(path)
		waiting = slices.DeleteFunc(waiting, func(id string) bool {
			return answers[id].code == code && strings.Contains(answers[id].body, text)
		})
		return len(waiting) == 0
	})
}

type answer struct {
	code int
	body string
}

// answers has the answers of those nodes whose address can be read, or was before the database
// went away, by their ids.
func (r *run) answers(path string) map[string]answer {
	rows, _ := r.pool.Query(r.Context(), addressesSQL)
	var id, address string
	_, _ = pgx.ForEachRow(rows, []any{&id, &address}, func() error { // the next round reads the rest
		r.addresses[id] = strings.TrimPrefix(address, "http://")
		return nil
	})
	found := map[string]answer{}
	for id, address := range r.addresses {
		code, body, _ := nodes.Get(address, path)
		found[id] = answer{code, html.UnescapeString(string(body))}
	}
	return found
}

// awaitDoctor waits until forge doctor prints the text.
func (r *run) awaitDoctor(text string, before func()) {
	r.Helper()
	r.eventually(fmt.Sprintf("forge doctor prints %q", text), func() bool {
		before()
		out, _ := r.command(r.Context(), "doctor", "--config", r.config).Output()
		return strings.Contains(string(out), text)
	})
}

// With no room on its disk PostgreSQL refuses to write, and panics when that hits
// its log; a full disk may keep it from starting again. Nodes are not ready while
// writes are refused, and say why; so do the overview and forge doctor.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	server, disk := pgtest.ServerOnDisk(t, diskMegabytes)
	r := prepareOn(t, server)
	fill := func() {
		if err := disk.Fill(); err != nil {
			r.Fatal(err)
		}
	}
	write := func(sql string) string {
		fill()
		_, err := r.pool.Exec(r.Context(), sql)
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
			return refused.Code
		} else if err != nil {
			return connectionLost
		}
		return ""
	}
	r.endure(fullDisk, func() {
		r.awaitTicks(3)
		r.awaitAnswers("/readyz", http.StatusOK, "", func() {})
		r.spareLog()
		r.eventually("PostgreSQL finds no room", func() bool { return write(writeSQL) == "53100" })
		r.note(diskFull, "")
		const refused = "the database cannot write to its disk: "
		r.awaitAnswers("/readyz", http.StatusServiceUnavailable, refused, fill)
		r.awaitAnswers("/", http.StatusOK, " is not ready: "+refused, fill)
		r.awaitDoctor("make room on the server's disk", fill)
		r.eventually("PostgreSQL panics", func() bool {
			code := write(switchSQL)
			return code == connectionLost || strings.HasPrefix(code, "57P") // it crashes, it recovers
		})
		r.note(noLog, "")
		time.Sleep(lease / 2)
		if err := disk.Free(); err != nil {
			r.Fatal(err)
		}
		r.eventually("PostgreSQL is back", func() bool {
			server.Revive()
			return r.pool.Ping(r.Context()) == nil
		})
		r.awaitTicks(3)
		r.awaitAnswers("/readyz", http.StatusOK, "", func() {})
		r.awaitDoctor("the server writes to its disk", func() {})
	})
}

// spareLog has the server keep a segment of its log that is not in use, so that it does not
// run out of log while its tables have no room.
func (r *run) spareLog() {
	r.Helper()
	r.exec(switchSQL)
	r.exec("CHECKPOINT")
}

// The database's clock leaps an hour ahead, back, and ahead again.
func TestDatabaseClockLeaps(t *testing.T) {
	t.Parallel()
	server, clock := pgtest.ServerWithClock(t)
	r := prepareOn(t, server)
	ahead := time.Duration(0)
	leap := func(to time.Duration) {
		// The jobs say how far the clock may have been ahead when they began.
		if err := os.WriteFile(filepath.Join(r.dir, "ahead"), []byte(time.Hour.String()), 0o600); err != nil {
			r.Fatal(err)
		}
		r.leaps = append(r.leaps, checker.Leap{At: time.Now().Add(to), By: to - ahead})
		if err := clock.Set(to); err != nil {
			r.Fatal(err)
		}
		ahead = to
		r.note(clockLeap, "")
	}
	r.endure(leapingClock, func() {
		r.awaitTicks(2)
		leap(time.Hour)
		r.awaitTicks(2)
		leap(0)
		time.Sleep(lease * 3 / 2)
		leap(time.Hour)
		r.awaitTicks(2)
	})
}

// The primary is killed, and its replica takes over.
func TestPromotion(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	replica := primary.Replica()
	r := prepareOn(t, primary)
	var err error
	if r.url, err = parts.MultiHost(primary.URL(), replica.URL()); err != nil {
		t.Fatal(err)
	}
	r.pool = pgtest.Connect(t, r.url)
	r.env = append(r.env, "FORGE_DATABASE_URL="+r.url)
	r.direct = func(string) string { return r.url }
	r.endure(promotion, func() {
		r.awaitTicks(3)
		r.awaitAnswers("/readyz", http.StatusOK, "", func() {})
		r.awaitReplicated(replica.URL())
		primary.Stop(devcluster.StopKill)
		r.note(promoted, "")
		time.Sleep(lease)
		const noPrimary = "no server takes writes, only read-only ones answer, since "
		r.awaitAnswers("/readyz", http.StatusServiceUnavailable, "database: "+noPrimary, func() {})
		r.awaitAnswers("/", http.StatusServiceUnavailable, "The database cannot be read: "+noPrimary, func() {})
		replica.Promote()
		r.awaitTicks(2)
		r.signal(r.leader(r.Context()), syscall.SIGKILL, fault{kind: killLeader})
		r.awaitTicks(2)
	})
}

// Packets are lost, of whoever leads and of the others: no connection breaks, and a
// process that dies meanwhile is not heard either.
func TestPartitions(t *testing.T) {
	t.Parallel()
	inside, missing := networks(t)
	if missing != nil {
		pgtest.NotRun(t, missing.Part, missing.Install)
	}
	r := prepareOn(t, pgtest.Server(t, slices.Collect(maps.Values(inside))...))
	r.inside = inside
	r.direct = r.throughOwnNetwork
	r.endure(lostPackets, func() {
		r.awaitTicks(2)
		for _, step := range []struct {
			what kind
			drop func(*parts.Namespace, context.Context) error
			dies bool // unheard
		}{
			{packetsLost, (*parts.Namespace).Drop, false},
			{repliesLost, (*parts.Namespace).DropReplies, false},
			{packetsLost, (*parts.Namespace).Drop, true},
		} {
			k := r.leader(r.Context())
			if err := step.drop(inside[k.id], r.Context()); err != nil {
				r.Fatal(err)
			}
			r.note(step.what, k.id)
			if step.dies {
				r.signal(k, syscall.SIGKILL, fault{kind: killLeader})
			}
			r.eventually("another one leads", func() bool { return r.leadsAnother(r.Context(), k.id) })
			if err := inside[k.id].Heal(r.Context()); err != nil {
				r.Fatal(err)
			}
			r.awaitTicks(1)
		}
	})
}
