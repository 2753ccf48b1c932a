package aggregator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// The old gauges of a restarted or dead node are wrong at once, not only when they
// are old.
const reportsSQL = `
SELECT m.samples, m.at > $1 AND n.node_id IS NOT NULL
FROM forge_metrics_nodes m
LEFT JOIN forge_nodes n
    ON n.node_id = m.node_id AND n.incarnation = m.incarnation AND n.state IN ('active', 'draining')`

// Each row is a sample with at most one label. A node that has not left in order
// and does not report is included; roles without a leader have series as well, so
// that no sum over them is empty. A leader that is not a node, such as a program
// that uses SQL or forge run, reports nothing itself.
const clusterSQL = `
SELECT 'forge_nodes', 'state', states.state, count(n.node_id)::float8
FROM unnest('{active,draining,left,dead}'::text[]) AS states (state)
LEFT JOIN forge_nodes n ON forge_node_state(n.state, n.last_heartbeat_at, n.dead_after) = states.state
GROUP BY states.state
UNION ALL
SELECT 'forge_config_drifting_nodes', '', '', count(*)::float8
FROM forge_nodes n, (SELECT hash FROM forge_config ORDER BY applied_at DESC LIMIT 1) AS in_force
WHERE forge_node_state(n.state, n.last_heartbeat_at, n.dead_after) IN ('active', 'draining') AND n.config_hash NOT IN ('', in_force.hash)
UNION ALL
SELECT 'forge_node_reporting', 'node_id', n.node_id,
    ((m.at > $1 AND m.incarnation = n.incarnation AND n.state <> 'dead') IS TRUE)::int::float8
FROM forge_nodes n
LEFT JOIN forge_metrics_nodes m ON m.node_id = n.node_id
WHERE n.state <> 'left'
UNION ALL
SELECT 'forge_node_slots_used', 'node_id', node_id, running::float8
FROM forge_nodes
WHERE forge_node_state(state, last_heartbeat_at, dead_after) IN ('active', 'draining')
UNION ALL
SELECT series, 'role', role, CASE WHEN series = 'forge_leader_is_leader' AND EXISTS (
    SELECT FROM forge_leaders l
    WHERE l.role = roles.role AND l.node_id IS NOT NULL AND l.lease_until > clock_timestamp()
      AND NOT EXISTS (SELECT FROM forge_nodes n WHERE n.incarnation = l.incarnation)) THEN 1 ELSE 0 END
FROM (SELECT role FROM forge_leaders UNION SELECT unnest('{scheduler,metrics_aggregator,log_compactor}'::text[])) AS roles,
    unnest('{forge_leader_is_leader,forge_leader_failovers_total}'::text[]) AS series`

// Whatever its node reported last: a role whose lease has expired has no leader.
const vacantSQL = `SELECT role FROM forge_leaders WHERE node_id IS NULL OR lease_until <= $1`

// retiredNode is the node id of the row with the counts of nodes that are gone. No
// node can have it.
const retiredNode = ""

const retireSQL = `
DELETE FROM forge_metrics_nodes m
WHERE m.node_id <> '' AND m.at < $1
  AND NOT EXISTS (
      SELECT FROM forge_nodes n
      WHERE n.node_id = m.node_id AND n.incarnation = m.incarnation AND n.state IN ('active', 'draining'))
RETURNING samples`

const saveRetiredSQL = `
INSERT INTO forge_metrics_nodes (node_id, incarnation, samples)
VALUES ('', '', $1)
ON CONFLICT (node_id) DO UPDATE SET at = clock_timestamp(), samples = excluded.samples`

// The columns are the keys of a metrics.Sample.
const writeSQL = `
INSERT INTO forge_metrics_cluster (metric, labels, at, value, histogram, term)
SELECT n, coalesce(l, '{}'), $2, v, h, $3
FROM jsonb_to_recordset($1) AS samples (n text, l jsonb, v float8, h jsonb)
ON CONFLICT (metric, labels, at) DO UPDATE
SET value = excluded.value, histogram = excluded.histogram, term = excluded.term`

const newestPointSQL = `SELECT max(at) FROM forge_metrics_cluster`

// Every series is written at least once in fullInterval.
const latestSQL = `
SELECT DISTINCT ON (metric, labels) ` + pointColumns + `
FROM forge_metrics_cluster
WHERE at >= (SELECT max(at) FROM forge_metrics_cluster) - 2 * $1::interval
ORDER BY metric, labels, at DESC`

const clocksSQL = `
SELECT m.node_id, extract(epoch FROM (m.samples ->> 'clock')::timestamptz - m.at)::float8
FROM forge_metrics_nodes m
JOIN forge_nodes n ON n.node_id = m.node_id AND n.incarnation = m.incarnation
    AND forge_node_state(n.state, n.last_heartbeat_at, n.dead_after) IN ('active', 'draining')
WHERE m.samples ? 'clock'
ORDER BY m.node_id`

const prunePointsSQL = `
WITH due AS MATERIALIZED (
    SELECT metric, labels, at
    FROM forge_metrics_cluster
    WHERE at < $1 AND at >= $3 AND at < $4
    ORDER BY at
    LIMIT $2)
DELETE FROM forge_metrics_cluster m
USING due
WHERE m.metric = due.metric AND m.labels = due.labels AND m.at = due.at AND m.at >= $3 AND m.at < $4`

const pointColumns = `metric, labels, value, histogram, at, term`

// Point is one sum of the cluster at one instant.
type Point struct {
	metrics.Sample

	At time.Time
	// Term is the term of the aggregator's leader that wrote it.
	Term int64
}

// Latest returns the newest point of every series, ordered by metric and labels.
// The times show how old the points are: nothing is written while there is no
// aggregator.
func (s *Store) Latest(ctx context.Context) ([]Point, error) {
	return postgres.Select(ctx, s.db, "read the cluster's metrics", pgx.RowToStructByPos[Point], latestSQL, fullInterval)
}

// PrunePoints deletes at most limit points from from (inclusive) to to (exclusive) that are
// older than an instant, by their key: a ctid is not unique across partitions.
func (s *Store) PrunePoints(ctx context.Context, before, from, to time.Time, limit int) (int64, error) {
	return postgres.Affected(ctx, s.db, "prune the cluster's metrics", prunePointsSQL, before, limit, from, to)
}

// Clock is how far a node's clock was ahead of the database's at its last report,
// minus the time that the report took to arrive.
type Clock struct {
	NodeID string
	Ahead  time.Duration
}

// Clocks returns the clock of every live node that has reported.
func (s *Store) Clocks(ctx context.Context) ([]Clock, error) {
	return postgres.Select(ctx, s.db, "read the nodes' clocks", func(row pgx.CollectableRow) (Clock, error) {
		var clock Clock
		var ahead float64
		err := row.Scan(&clock.NodeID, &ahead)
		clock.Ahead = time.Duration(ahead * float64(time.Second))
		return clock, err
	}, clocksSQL)
}

func readReports(ctx context.Context, db postgres.DB, freshAfter time.Time) ([]nodeReport, error) {
	return postgres.Select(ctx, db, "read the nodes' metrics", func(row pgx.CollectableRow) (nodeReport, error) {
		var node nodeReport
		err := row.Scan(&node.report, &node.fresh)
		return node, err
	}, reportsSQL, freshAfter)
}

// readVacant returns the roles without a leader.
func readVacant(ctx context.Context, db postgres.DB, now time.Time) (map[string]bool, error) {
	roles, err := postgres.Collect(ctx, db, pgx.RowTo[string], vacantSQL, now)
	if err != nil {
		return nil, fmt.Errorf("read the roles that nobody leads: %w", err)
	}
	vacant := map[string]bool{}
	for _, role := range roles {
		vacant[role] = true
	}
	return vacant, nil
}

// depths are the numbers of unfinished jobs by queue and state, as counted last. A count
// reads every unfinished job, in pages. So that its cost per second is bounded for any number
// of jobs, they are counted less often if there are many: a million every 100 seconds.
type depths struct {
	samples []metrics.Sample // nil before the first count of a term is complete
	count   jobstore.OpenCount
	read    time.Time // when pages were read last
	valid   time.Duration
}

func (d *depths) get(ctx context.Context, db postgres.DB, now time.Time) ([]metrics.Sample, error) {
	if age := now.Sub(d.read); age >= 0 && age < d.valid {
		return d.samples, nil
	}
	jobs := 0
	for range maxCountPages {
		counted, all, err := d.count.Next(ctx, db, countedPerSecond)
		if err != nil {
			return nil, err
		}
		jobs += counted
		if all != nil {
			d.samples = ofDepths(all)
			break
		}
	}
	d.read, d.valid = now, time.Duration(jobs)*time.Second/countedPerSecond
	if d.samples == nil {
		d.valid = 0
	}
	return d.samples, nil
}

// maxDepths bounds the queues with depths of their own: those with the most jobs. The others share
// the label Other.
const maxDepths = 1000

func ofDepths(counts []jobstore.Count) []metrics.Sample {
	jobs := map[string]int64{}
	for _, c := range counts {
		jobs[c.Queue] += c.Jobs
	}
	queues := slices.SortedFunc(maps.Keys(jobs), func(a, b string) int {
		return cmp.Or(cmp.Compare(jobs[b], jobs[a]), cmp.Compare(a, b))
	})
	shared := map[string]bool{}
	for _, queue := range queues[min(maxDepths, len(queues)):] {
		shared[queue] = true
	}
	depths := map[jobstore.Count]float64{}
	for _, c := range counts {
		if shared[c.Queue] {
			c.Queue = Other
		}
		depths[jobstore.Count{Queue: c.Queue, State: c.State}] += float64(c.Jobs)
	}
	samples := make([]metrics.Sample, 0, len(depths))
	for c, depth := range depths {
		samples = append(samples, metrics.Sample{
			Name: metrics.QueueDepthName, Labels: map[string]string{"queue": c.Queue, "state": c.State}, Value: depth,
		})
	}
	return samples
}

// countNodes counts the nodes, which no node can count itself. A node whose last report
// is not after freshAfter is not reporting.
func countNodes(ctx context.Context, db postgres.DB, freshAfter time.Time) ([]metrics.Sample, error) {
	return postgres.Select(ctx, db, "count the nodes", func(row pgx.CollectableRow) (metrics.Sample, error) {
		var sample metrics.Sample
		var label, value string
		err := row.Scan(&sample.Name, &label, &value, &sample.Value)
		if label != "" {
			sample.Labels = map[string]string{label: value}
		}
		return sample, err
	}, clusterSQL, freshAfter)
}

// retire moves the counters of nodes whose last report was before an instant to the
// row of nodes that are gone.
func retire(ctx context.Context, tx pgx.Tx, before time.Time) error {
	gone, err := postgres.Collect(ctx, tx, pgx.RowTo[report], retireSQL, before)
	if err != nil {
		return fmt.Errorf("retire metrics: %w", err)
	}
	if len(gone) == 0 {
		return nil
	}
	retired, err := postgres.Collect(ctx, tx, pgx.RowTo[report], previousSQL, retiredNode)
	if err != nil {
		return fmt.Errorf("read retired metrics: %w", err)
	}
	// The row of the nodes that are gone would grow by each of them.
	base := slices.DeleteFunc(counted(append(retired, gone...)...), func(s metrics.Sample) bool { return metrics.OfNode(s.Name) })
	return postgres.Exec(ctx, tx, "save retired metrics", saveRetiredSQL, report{Base: base})
}

func writeSums(ctx context.Context, tx pgx.Tx, samples []metrics.Sample, at time.Time, term int64) error {
	if len(samples) == 0 {
		return nil
	}
	return postgres.Exec(ctx, tx, "write the cluster's metrics", writeSQL, samples, at, term)
}

// countHazards reads conditions that stop a cluster even if its nodes and roles are
// up.
func countHazards(ctx context.Context, db postgres.DB) ([]metrics.Sample, error) {
	queues, err := jobstore.New(db).WaitingQueues(ctx)
	if err != nil {
		return nil, err
	}
	snapshots, err := postgres.Snapshots(ctx, db)
	if err != nil {
		return nil, err
	}
	slots, err := postgres.Slots(ctx, db)
	if err != nil {
		return nil, err
	}
	clock, err := postgres.ReadClock(ctx, db)
	if err != nil {
		return nil, err
	}
	clocks, err := NewStore(db).Clocks(ctx)
	if err != nil {
		return nil, err
	}
	samples := append(ofQueues(queues), ofSnapshots(snapshots)...)
	for _, c := range clocks {
		ahead := math.Round(c.Ahead.Seconds()*10) / 10
		samples = append(samples, labelled(metrics.NodeClockName, "node_id", c.NodeID, ahead))
	}
	var retained int64
	for _, s := range slots {
		retained = max(retained, s.RetainedBytes)
	}
	return append(samples,
		metrics.Sample{Name: metrics.SlotBytesName, Value: float64(retained)},
		metrics.Sample{Name: metrics.SetBackName, Value: clock.SetBack.Seconds()}), nil
}

func ofQueues(queues []jobstore.Queue) []metrics.Sample {
	var samples []metrics.Sample
	for _, q := range queues {
		paused := time.Duration(0)
		if !q.PausedAt.IsZero() {
			paused = max(q.Now.Sub(q.PausedAt), 0)
		}
		samples = append(samples,
			labelled(metrics.QueueOldestName, "queue", q.Name, q.WaitSeconds),
			labelled(metrics.QueuePausedName, "queue", q.Name, paused.Seconds()))
	}
	return samples
}

func ofSnapshots(snapshots []postgres.Snapshot) []metrics.Sample {
	transactions, age := map[string]int64{}, map[string]time.Duration{}
	for _, s := range snapshots {
		transactions[s.Holder] = max(transactions[s.Holder], s.Transactions)
		age[s.Holder] = max(age[s.Holder], s.Age)
	}
	var samples []metrics.Sample
	for _, holder := range postgres.Holders {
		samples = append(samples, labelled(metrics.SnapshotName, "holder", holder, float64(transactions[holder])))
	}
	for _, holder := range []string{postgres.Session, postgres.Prepared} { // the other holders have no time
		samples = append(samples, labelled(metrics.TransactionName, "holder", holder, age[holder].Seconds()))
	}
	return samples
}

func labelled(name, label, value string, sum float64) metrics.Sample {
	return metrics.Sample{Name: name, Labels: map[string]string{label: value}, Value: sum}
}

const instantsSQL = `SELECT DISTINCT at FROM forge_metrics_cluster WHERE at >= $1 ORDER BY at`

const namesSQL = `SELECT DISTINCT metric FROM forge_metrics_cluster WHERE at >= $1`

const recentSQL = `
SELECT ` + pointColumns + `
FROM forge_metrics_cluster
WHERE at >= $1 AND metric = ANY($2)
ORDER BY at`

// Totals are the cluster's totals at one instant.
type Totals struct {
	At      time.Time
	Samples []metrics.Sample
}

// Recent returns the totals of the wanted metrics at each instant since one at
// which the cluster was summed. A total is written when it changes; in between, the
// last value is valid for as long as holds returns.
func (s *Store) Recent(ctx context.Context, interval time.Duration, since time.Time, want func(name string) bool) ([]Totals, error) {
	all, err := s.recent(ctx, holds(interval), since, want)
	if err != nil {
		return nil, fmt.Errorf("read the recent totals: %w", err)
	}
	return all, nil
}

func (s *Store) recent(ctx context.Context, hold time.Duration, since time.Time, want func(name string) bool) ([]Totals, error) {
	from := since.Add(-hold)
	instants, err := postgres.Collect(ctx, s.db, pgx.RowTo[time.Time], instantsSQL, from)
	if err != nil {
		return nil, err
	}
	names, err := postgres.Collect(ctx, s.db, pgx.RowTo[string], namesSQL, from)
	if err != nil {
		return nil, err
	}
	var wanted []string
	for _, name := range names {
		if want(name) {
			wanted = append(wanted, name)
		}
	}
	points, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Point], recentSQL, from, wanted)
	if err != nil {
		return nil, err
	}
	return fillIn(instants, points, since, hold), nil
}

// fillIn returns the value of each series at each instant from since on. Points and
// instants are ordered by time.
func fillIn(instants []time.Time, points []Point, since time.Time, hold time.Duration) []Totals {
	now := map[string]Point{}
	var all []Totals
	for _, at := range instants {
		for len(points) > 0 && !points[0].At.After(at) {
			now[seriesKey(points[0].Sample)] = points[0]
			points = points[1:]
		}
		if at.Before(since) {
			continue
		}
		totals := Totals{At: at}
		for key, p := range now {
			if at.Sub(p.At) > hold {
				delete(now, key)
				continue
			}
			totals.Samples = append(totals.Samples, p.Sample)
		}
		all = append(all, totals)
	}
	return all
}
