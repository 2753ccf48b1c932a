package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// roleNames are the roles that every node may lead.
var roleNames = []string{"scheduler", "metrics_aggregator", "log_compactor"}

// burnersEnv says how many busy threads a process of this program is to be.
const burnersEnv = "CHAOS_BURNERS"

// burn keeps so many threads busy until the process is killed.
func burn(count int) {
	runtime.GOMAXPROCS(count)
	var n atomic.Int64
	spin := func() {
		for n.Load() == 0 {
			runtime.KeepAlive(&n)
		}
	}
	for range count - 1 {
		go spin()
	}
	spin()
}

// burnersPerCPU are few where other tests run beside this one.
func burnersPerCPU() int {
	if *forFlag < time.Minute {
		return 10
	}
	return 50
}

// overload takes the machine's processors for a while.
func (r *run) overload(f fault) {
	self, err := os.Executable()
	if err != nil {
		r.Error(err)
		return
	}
	count := burnersPerCPU() * runtime.NumCPU()
	burners, err := nodes.Start(self, os.Stderr, append(r.env, burnersEnv+"="+strconv.Itoa(count)))
	if err != nil {
		r.Errorf("overload the machine: %v", err)
		return
	}
	r.note(overload, "")
	time.Sleep(f.hold)
	burners.Kill()
}

// strangerName is the schema and the node of the second cluster.
const strangerName = "stranger"

// stranger is a second cluster in the database: one node, that lives now and then.
type stranger struct {
	mu       sync.Mutex
	config   string
	migrated bool
}

// startStranger lets the second cluster live for a while. What is done to PostgreSQL
// meanwhile may keep it from starting.
func (r *run) startStranger(ctx context.Context, f fault) {
	r.stranger.mu.Lock()
	defer r.stranger.mu.Unlock()
	node, err := r.strangerNode(ctx)
	if err != nil {
		r.Logf("the second cluster: %v", err)
		return
	}
	r.note(startStranger, "")
	select {
	case <-node.Done():
	case <-time.After(f.hold + lease): // it needs as long to look twice at who leads
		r.stopStranger(node)
	}
}

// leaseEnv is the length of leases.
const leaseEnv = "FORGE_CLUSTER_LEADER_ELECTION_LEASE_DURATION"

// strangerNode starts the second cluster's node, with the defaults in all but the schema.
func (r *run) strangerNode(ctx context.Context) (*nodes.Process, error) {
	s := &r.stranger
	s.config = filepath.Join(r.dir, strangerName+".toml")
	if err := os.WriteFile(s.config, fmt.Appendf(nil, "[database]\nschema = %q\n", strangerName), 0o600); err != nil {
		return nil, err
	}
	if !s.migrated {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitTimeout) // half a schema is none
		defer cancel()
		if out, err := r.command(ctx, "migrate", "up", "--config", s.config).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("forge migrate up: %w: %s", err, out)
		}
		s.migrated = true
	}
	log, err := os.OpenFile(filepath.Join(r.dir, strangerName+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own descriptor
	node, err := nodes.Start(r.forge, log, append(slices.Clone(r.env), leaseEnv+"="+lease.String()), "serve", "--config", s.config, "--node-id", strangerName, "--listen", nodes.AnyPort)
	if err == nil {
		r.Cleanup(node.Kill)
	}
	return node, err
}

func (r *run) stopStranger(node *nodes.Process) {
	_ = node.Process.Signal(syscall.SIGTERM) // it may be gone
	select {
	case <-node.Done():
	case <-time.After(waitTimeout):
		node.Kill()
		r.Error("the second cluster does not stop")
	}
}

// checkStranger demands that the second cluster has ended no session of the first: that
// is what its node calls to evict.
func (r *run) checkStranger() {
	r.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, strangerName+".log"))
	if err != nil {
		return // it never lived
	}
	for line := range bytes.Lines(text) {
		if bytes.Contains(line, []byte("evicted")) {
			r.Errorf("the second cluster has evicted somebody: %s", line)
		}
	}
	for _, accident := range accidents {
		if bytes.Contains(text, []byte(accident)) {
			r.Errorf("the second cluster printed %s", accident)
		}
	}
}

const deleteRowSQL = `DELETE FROM forge_leaders WHERE role = $1`

// deleteRow deletes the row of a role, as somebody may by hand.
func (r *run) deleteRow(ctx context.Context, role string) {
	ctx, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	if tag, err := r.pool.Exec(ctx, deleteRowSQL, role); err == nil && tag.RowsAffected() > 0 {
		r.note(deleteRow, "")
	}
}

const termsSQL = `SELECT string_agg(role || ' ' || term, ', ' ORDER BY role) FROM forge_leaders WHERE node_id IS NOT NULL`

// A second cluster in the same database with the same defaults leads its own roles and
// costs the first no term; a role whose row somebody deletes is led again, in a later
// term.
func TestStrangers(t *testing.T) {
	t.Parallel()
	r := prepareOn(t, pgtest.Server(t))
	r.env = append(r.env, leaseEnv+"=15s") // a slow machine costs the first no term
	r.endure(strangers, func() {
		r.eventually("every role is led", func() bool { return r.led("public") == len(roleNames) })
		before := r.text1(termsSQL)
		node, err := r.strangerNode(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		r.note(strangeTerm, "")
		r.eventually("the second cluster leads its own roles", func() bool { return r.led(strangerName) == len(roleNames) })
		r.awaitTicks(2)
		time.Sleep(2 * lease) // it would have evicted the first by then
		if after := r.text1(termsSQL); after != before {
			r.Errorf("the second cluster came: terms %s, before %s", after, before)
		}
		r.stopStranger(node)
		for _, role := range roleNames {
			r.exec(deleteRowSQL, role)
		}
		r.note(rowMissing, "")
		r.eventually("every role is led again", func() bool { return r.led("public") == len(roleNames) })
	})
}

// led counts the roles that are led in a schema.
func (r *run) led(schema string) (n int) {
	if err := r.pool.QueryRow(r.Context(), `SELECT count(*) FROM `+schema+`.forge_leaders WHERE node_id IS NOT NULL`).Scan(&n); err != nil {
		return 0
	}
	return n
}

// text1 reads one text from the database.
func (r *run) text1(sql string) (text string) {
	r.Helper()
	if err := r.pool.QueryRow(r.Context(), sql).Scan(&text); err != nil {
		r.Fatal(err)
	}
	return text
}
