package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/test/parts"
)

// nodeCount is how many processes a cluster has.
const nodeCount = 3

// crons fire about ten times a second, so that a leader has work in flight.
const crons = 10

const (
	leaderSQL = `
SELECT node_id, term FROM forge_leaders
WHERE role = 'scheduler' AND node_id IS NOT NULL AND lease_until > clock_timestamp() AND term > $1`

	// Read while the tenure lasts: its end rewrites the row.
	acquiredSQL = `
SELECT pg_xact_commit_timestamp(xmin) FROM forge_leader_history
WHERE role = 'scheduler' AND term = $1`

	lastWorkSQL = `
SELECT max(pg_xact_commit_timestamp(xmin)) FROM forge_cron_ticks WHERE term = $1`

	worksSQL = `SELECT EXISTS (SELECT FROM forge_cron_ticks WHERE term = $1)`

	joinedSQL = `SELECT state = 'active' FROM forge_nodes WHERE node_id = $1`

	// A deputy waits in line for the lock that shows that the leader lives.
	deputiesSQL = `
SELECT count(*) >= 2
FROM forge_leaders l
JOIN pg_locks held ON held.pid = l.backend_pid AND held.locktype = 'advisory' AND held.granted
JOIN pg_locks waits ON waits.locktype = 'advisory' AND NOT waits.granted AND waits.database = held.database
     AND (waits.classid, waits.objid, waits.objsubid) = (held.classid, held.objid, held.objsubid)
WHERE l.role = 'scheduler'`
)

// measureOnOne takes the faults in turn on one cluster.
func measureOnOne(faults []fault) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		return b.withCluster(ctx, faults[0].network, func(c *cluster) error {
			if err := c.startNodes(ctx); err != nil {
				return err
			}
			for _, f := range faults {
				for trial := range b.trials * max(len(f.kinds), 1) {
					if err := c.trial(ctx, f, trial); err != nil {
						return fmt.Errorf("trial %d: %w", trial+1, err)
					}
				}
			}
			return nil
		})
	}
}

func makeNetworks(ctx context.Context) ([]*parts.Namespace, error) {
	var networks []*parts.Namespace
	for range nodeCount {
		network, err := parts.NewNamespace(ctx)
		if err != nil {
			return nil, errors.Join(err, closeNetworks(networks))
		}
		networks = append(networks, network)
	}
	return networks, nil
}

func closeNetworks(networks []*parts.Namespace) error {
	var errs []error
	for _, network := range networks {
		errs = append(errs, network.Close())
	}
	return errors.Join(errs...)
}

func forgeConfig() string {
	var text strings.Builder
	for i := range crons {
		fmt.Fprintf(&text, `[[crons]]
name = "tick-%d"
schedule = "@every 1s"
jitter = "900ms"
overlap = "allow"
sql = "SELECT 1"

`, i)
	}
	return text.String()
}

func (c *cluster) startNodes(ctx context.Context) error {
	for i := range nodeCount {
		if err := c.startNode(ctx, c.network(i)); err != nil {
			return err
		}
	}
	return nil
}

// network is the i-th node's own, nil if it has none.
func (c *cluster) network(i int) *parts.Namespace {
	if i < len(c.networks) {
		return c.networks[i]
	}
	return nil
}

// address is the database's for a process in a network.
func (c *cluster) address(network *parts.Namespace) (string, error) {
	if network == nil {
		return c.url, nil
	}
	return network.Through(c.url)
}

func (c *cluster) startNode(ctx context.Context, network *parts.Namespace) error {
	id := c.name("n")
	url, err := c.address(network)
	if err != nil {
		return err
	}
	listen, err := devcluster.FindPort("127.0.0.1")
	if err != nil {
		return err
	}
	node, err := c.start(id, network, []string{"FORGE_DATABASE_URL=" + url},
		c.binary, "serve", "--config", c.config(), "--node-id", id, "--listen", listen, "--log-format", "json")
	if err != nil {
		return err
	}
	return rig.Await(ctx, id+" joins", func(ctx context.Context) (joined bool, err error) {
		if err := node.Alive(); err != nil {
			return false, err
		}
		err = c.pool.QueryRow(ctx, joinedSQL, id).Scan(&joined)
		return joined, err
	})
}

// ready waits until there is a leader that works and has its deputies, and then
// for a moment of the renewals' round that nobody can foresee.
func (c *cluster) ready(ctx context.Context) (leader *process, term int64, err error) {
	id, term, err := c.leader(ctx, 0)
	if err != nil {
		return nil, 0, err
	}
	if err := c.awaitTrue(ctx, "the leader works", worksSQL, term); err != nil {
		return nil, 0, err
	}
	if err := c.awaitTrue(ctx, "the leader has deputies", deputiesSQL); err != nil {
		return nil, 0, err
	}
	time.Sleep(rand.N(time.Second))
	if leader = c.node(id); leader == nil {
		return nil, 0, fmt.Errorf("%s leads and is none of ours", id)
	}
	return leader, term, nil
}

// trial breaks the leader once and puts the cluster right again.
func (c *cluster) trial(ctx context.Context, f fault, trial int) error {
	leader, term, err := c.ready(ctx)
	if err != nil {
		return err
	}
	struck, err := f.inject(ctx, c, leader, trial)
	if err != nil {
		return err
	}
	stop := c.showIfLate(ctx, f)
	m, err := c.successor(ctx, term, struck)
	stop()
	if err != nil {
		return err
	}
	c.report.judge(f, m.took)
	if f.stops != nil {
		stopped, err := f.stops(struck, leader)
		if err != nil {
			return err
		}
		m.pause = m.acquired.Sub(stopped)
	}
	if f.heal != nil {
		if err := f.heal(ctx, leader); err != nil {
			return err
		}
	}
	if err := c.lastWork(ctx, term, &m); err != nil {
		return err
	}
	names := []string{f.name}
	if len(f.kinds) > 0 {
		names = append(names, f.name+"_"+f.kinds[trial%len(f.kinds)])
	}
	c.record(names, m)
	if !f.gone {
		return nil
	}
	leader.Kill()
	c.forget(leader)
	return c.startNode(ctx, leader.network)
}

const (
	sessionsSQL = `
SELECT format('%s %s: %s for %s, in a transaction for %s, waits for %s/%s, blocked by %s: %s', pid, application_name, state,
    clock_timestamp() - state_change, clock_timestamp() - xact_start, wait_event_type, wait_event, pg_blocking_pids(pid), left(query, 200))
FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'forge:%'
ORDER BY application_name, pid`

	rowsSQL = `SELECT format('%s: %s', clock_timestamp(), to_jsonb(l)) FROM forge_leaders AS l ORDER BY role`
)

// showIfLate prints what PostgreSQL's sessions do once a takeover has lasted longer than
// its bound; stop ends the wait for that.
func (c *cluster) showIfLate(ctx context.Context, f fault) (stop func()) {
	bound := c.report.bound(f)
	if bound == 0 {
		return func() {}
	}
	timer := time.AfterFunc(bound, func() {
		for _, sql := range []string{rowsSQL, sessionsSQL} {
			rows, err := c.pool.Query(ctx, sql)
			if err != nil {
				c.say("%s: %v", f.name, err)
				continue
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			c.say("%s is late (%v):\n%s", f.name, err, strings.Join(lines, "\n"))
		}
	})
	return func() { timer.Stop() }
}

// outcome is what a trial found.
type outcome struct {
	acquired time.Time
	took     time.Duration // from the fault to the new term
	gap      time.Duration // from the old term's last commit to it
	pause    time.Duration // from the old leader's stop to it
}

// successor waits for the next term.
func (c *cluster) successor(ctx context.Context, term int64, struck time.Time) (m outcome, err error) {
	_, next, err := c.leader(ctx, term)
	if err != nil {
		return m, err
	}
	err = c.read(ctx, fmt.Sprintf("when term %d began", next), acquiredSQL, []any{next}, &m.acquired)
	m.took = m.acquired.Sub(struck)
	return m, err
}

// lastWork is read after a broken leader was back: what it wrote late counts.
func (c *cluster) lastWork(ctx context.Context, term int64, m *outcome) error {
	var last time.Time
	if err := c.read(ctx, fmt.Sprintf("the last work of term %d", term), lastWorkSQL, []any{term}, &last); err != nil {
		return err
	}
	m.gap = m.acquired.Sub(last)
	return nil
}

func (c *cluster) record(names []string, m outcome) {
	for _, name := range names {
		c.report.forge(name, m)
	}
	c.say("forge %-20s %3d  %8.1f ms, gap %8.1f ms, stop to start %8.1f ms",
		names[len(names)-1], c.report.trials(names[len(names)-1]), rig.Milliseconds(m.took), rig.Milliseconds(m.gap), rig.Milliseconds(m.pause))
}

// leader waits for a leader above a term.
func (c *cluster) leader(ctx context.Context, above int64) (id string, term int64, err error) {
	err = c.read(ctx, fmt.Sprintf("a leader above term %d", above), leaderSQL, []any{above}, &id, &term)
	return id, term, err
}
