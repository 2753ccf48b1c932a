//go:build patroni

package chaos

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/chaos/checker"
	"github.com/forge-scheduler/forge/test/nodes"
	"github.com/forge-scheduler/forge/test/parts"
)

var wayFlag = flag.String("chaos.way", "mixed", "the nodes' way to PostgreSQL under Patroni: haproxy, hosts (a URL with every host) or mixed")

const (
	// etcdGone is longer than Patroni's retry_timeout, after which it demotes the primary.
	etcdGone = 12 * time.Second
	// failoverTimeout is for a server that is to take writes after a fault. Patroni may keep
	// a primary that is frozen, so not each fault has one.
	failoverTimeout = 45 * time.Second
	// afterFailover is how long a fault lasts once another server takes writes.
	afterFailover = 3 * time.Second
	haproxyGone   = time.Second
)

// patroniRun is a run on servers under Patroni.
type patroniRun struct {
	*run

	patroni     *parts.Patroni
	writes      *writeProber
	synchronous bool // Patroni keeps a synchronous replica
}

// preparePatroni starts the servers, with documented settings that adapt may change.
func preparePatroni(t *testing.T, synchronous bool, adapt *strings.Replacer) *patroniRun {
	t.Helper()
	dir := nodes.OpenDir(t)
	patroni := startPatroni(t, dir, adapt)
	r := &patroniRun{run: prepareAt(t, patroni.Hosts(), pgtest.Connect(t, patroni.Hosts())), patroni: patroni, synchronous: synchronous}
	t.Cleanup(func() { r.keepLogs(dir) })
	r.blind = true
	r.direct = r.way
	r.awaitWhole()
	r.eventually("the schema is there", func() bool {
		out, err := r.command(r.Context(), "migrate", "up").CombinedOutput()
		if err != nil {
			r.Logf("forge migrate up: %v: %s", err, out)
		}
		return err == nil
	})
	r.writes = startWriteProber(t, patroni)
	return r
}

// keepLogs keeps the logs of the servers in the folder of the flag, or beside those of the nodes
// when the run has failed.
func (r *patroniRun) keepLogs(dir string) {
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	folder := cmp.Or(*outFlag, r.dir)
	if err != nil || folder == r.dir && !r.Failed() {
		return
	}
	for _, k := range r.keepers {
		logs = append(logs, k.log.Name())
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		r.Logf("keep the logs: %v", err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, filepath.Base(log)), text, 0o600)
		}
		if err != nil {
			r.Logf("keep a log: %v", err)
		}
	}
}

// way is a node's address of PostgreSQL.
func (r *patroniRun) way(id string) string {
	if *wayFlag == "haproxy" || *wayFlag == "mixed" && id != nodeNames[nodeCount-1] {
		return r.patroni.Through()
	}
	return r.patroni.Hosts()
}

// replicasSQL returns on a primary how many replicas it has, and whether commits wait for one.
// Patroni's own state may be that of before a fault, even while it repairs a server.
const replicasSQL = `
SELECT count(*) FILTER (WHERE state = 'streaming'), current_setting('synchronous_standby_names') <> '' AND count(*) FILTER (WHERE sync_state = 'sync') > 0
FROM pg_stat_replication WHERE application_name LIKE 'pg-%'`

// awaitWhole waits until every server is there, and the replica too for which commits wait.
func (r *patroniRun) awaitWhole() {
	r.Helper()
	r.eventually("every server runs", func() bool {
		state, err := r.patroni.State(r.Context())
		if err != nil || !state.Whole(r.synchronous) {
			return false
		}
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		var replicas int
		var waits bool
		err = r.pool.QueryRow(ctx, replicasSQL).Scan(&replicas, &waits)
		return err == nil && replicas == len(r.patroni.Members)-1 && waits == r.synchronous
	})
}

// awaitPrimary waits until another server than this one takes writes; false if none does.
func (r *patroniRun) awaitPrimary(than string) bool {
	for deadline := time.Now().Add(failoverTimeout); time.Now().Before(deadline); time.Sleep(watchEvery) {
		if now := r.writes.primary(); now != "" && now != than {
			return true
		}
	}
	return false
}

// strike does one fault to the servers, lets it last, and takes it back.
func (r *patroniRun) strike(what kind) {
	r.Helper()
	primary := r.patroni.Primary(r.Context())
	if primary == nil {
		r.Fatal("there is no primary")
	}
	r.Logf("%s: %s", what, primary.Name)
	r.note(what, "")
	var fail, heal func() error
	switch what { //nolint:exhaustive // the faults of servers
	case switchover:
		fail = func() error { return r.patroni.Switchover(r.Context()) }
	case killPrimary:
		fail, heal = primary.Kill, func() error { return primary.Start(r.Context()) }
	case freezePrimary:
		fail, heal = primary.Freeze, primary.Thaw
	case cutPrimary:
		fail, heal = func() error { return primary.Drop(r.Context()) }, func() error { return primary.Heal(r.Context()) }
	case stopEtcd, restartHAProxy:
		r.restart(what)
		return
	}
	if err := fail(); err != nil {
		r.Fatal(err)
	}
	if !r.awaitPrimary(primary.Name) {
		r.Logf("%s: no other server takes writes after %s", what, failoverTimeout)
	} else if heal != nil {
		time.Sleep(afterFailover)
	}
	if heal != nil {
		if err := heal(); err != nil {
			r.Fatal(err)
		}
	}
}

// restart ends etcd or HAProxy for a while.
func (r *patroniRun) restart(what kind) {
	r.Helper()
	daemon, gone := r.patroni.HAProxy, haproxyGone
	if what == stopEtcd {
		daemon, gone = r.patroni.Etcd, etcdGone
	}
	daemon.Kill()
	time.Sleep(gone)
	if err := daemon.Start(r.Context()); err != nil {
		r.Fatal(err)
	}
}

// recover waits until servers and nodes are as before a fault.
func (r *patroniRun) recover() {
	r.Helper()
	r.awaitWhole()
	r.awaitTicks(2)
	r.awaitAnswers("/readyz", http.StatusOK, "", func() {})
}

// TestPatroni breaks synchronous servers under Patroni, one fault after the other.
//
//nolint:paralleltest // the runs take the whole machine
func TestPatroni(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000 //nolint:gosec // not negative
	}
	t.Logf("seed %d: replay with make chaos-ha SEED=%d FOR=%s WAY=%s", seed, seed, *forFlag, *wayFlag)
	r := preparePatroni(t, true, strings.NewReplacer())
	r.seed = seed
	h := r.endure(failoverFaults, func() {
		r.awaitTicks(3)
		began := time.Now()
		for round := uint64(0); round == 0 || time.Since(began) < *forFlag; round++ {
			for _, what := range dealFailovers(seed, round) {
				if round > 0 && time.Since(began) >= *forFlag {
					break
				}
				r.strike(what)
				r.recover()
			}
		}
	})
	for _, k := range r.keepers {
		if k.lives != 1 {
			r.Errorf("%s had %d processes: a failover ended it", k.id, k.lives)
		}
	}
	r.reportFailovers(h)
	r.demandReasons()
}

const againSQL = `
SELECT id, kind, attempt - 1, cardinality(errors), coalesce((SELECT string_agg(e ->> 'error', '; ') FROM unnest(errors) AS e), '')
FROM river_job WHERE attempt > 1 ORDER BY id`

// demandReasons demands that each job that ran more than once says why. The jobs of a run fail
// at nothing else than the faults.
func (r *patroniRun) demandReasons() {
	r.Helper()
	rows, err := r.pool.Query(r.Context(), againSQL)
	if err != nil {
		r.Fatal(err)
	}
	var id, earlier, reasons int
	var kind, why string
	if _, err := pgx.ForEachRow(rows, []any{&id, &kind, &earlier, &reasons, &why}, func() error {
		r.Logf("job %d (%s) ran %d times: %s", id, kind, earlier+1, why)
		if reasons != earlier || !strings.HasPrefix(why, "node lost: ") {
			r.Errorf("job %d has %d reasons for %d earlier attempts: %s", id, reasons, earlier, why)
		}
		return nil
	}); err != nil {
		r.Fatal(err)
	}
}

// reportFailovers prints how soon terms followed.
func (r *patroniRun) reportFailovers(h *checker.History) {
	byCause, all := map[kind][]time.Duration{}, []time.Duration{}
	text := &strings.Builder{}
	for _, found := range recoveries(r.writes.stop(), r.events, acquires(h)) {
		next := "the leader kept its term"
		if found.term >= 0 {
			next = "next term after " + found.term.Round(time.Millisecond).String()
			byCause[found.cause] = append(byCause[found.cause], found.term)
			if found.cause != restartHAProxy { // which may be gone for longer
				all = append(all, found.term)
			}
		}
		fmt.Fprintf(text, "  %s: no server took writes for %s, then %s; %s\n",
			found.cause, found.to.Sub(found.from).Round(time.Millisecond), found.member, next)
	}
	fmt.Fprintf(text, "from a primary that takes writes to the next term: %s\n", distribution(all))
	for _, what := range failoverFaults {
		if len(byCause[what]) > 0 {
			fmt.Fprintf(text, "  %-38s %s\n", what, distribution(byCause[what]))
		}
	}
	for _, k := range r.keepers {
		log, err := os.ReadFile(k.log.Name())
		if err != nil {
			r.Fatal(err)
		}
		fmt.Fprintf(text, "%s logged %d lines, %d of them warnings and errors\n", k.id, bytes.Count(log, []byte("\n")),
			bytes.Count(log, []byte(" WRN "))+bytes.Count(log, []byte(" ERR ")))
	}
	r.Log(text)
}
