package rescue

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// ownerCheckInterval is the maximum pause between two checks of the owners of running
	// jobs while the set of living nodes does not change.
	ownerCheckInterval = 5 * time.Second
	// sessionEndTimeout is how long to wait for the end of a dead node's sessions.
	// sessionEndInterval is the time between checks. The fences do not depend on it.
	sessionEndTimeout, sessionEndInterval = 2 * time.Second, 20 * time.Millisecond
)

// nodeMonitor monitors the nodes during one term. Only one goroutine uses it.
type nodeMonitor struct {
	pool        *pgxpool.Pool
	fence       leaderstore.Fence
	metrics     *metrics.Metrics
	logger      *slog.Logger
	silence     silenceDetector
	piggybacked []func(*pgx.Batch) // queries of other parts; nil entries are skipped
	size        *postgres.BatchSize

	// alive contains the incarnations of the last check.
	alive []string
	// ownersCheckedAt is when the owners of running jobs were last found to be present;
	// zero after a change.
	ownersCheckedAt time.Time
	// plannedAt is when the next check is due.
	plannedAt time.Time
}

// step checks the nodes once. It fences dead nodes and rescues their jobs.
func (m *nodeMonitor) step(ctx context.Context) (time.Duration, error) {
	pause, err := m.checkNodes(ctx)
	if err != nil {
		m.silence.reset()
		m.ownersCheckedAt = time.Time{}
		return pause, err
	}
	m.plannedAt = time.Now().Add(pause)
	return pause, nil
}

func (m *nodeMonitor) checkNodes(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	checkCtx, cancel := context.WithTimeout(ctx, stepTimeout)
	nodes, sessionAge, err := m.readNodes(checkCtx)
	cancel()
	if err != nil {
		return 0, err
	}
	now := time.Now()
	m.silence.noteLateness(m.plannedAt, began, now, m.ownHeartbeatAge(nodes))
	m.silence.noteReturns(nodes)
	m.silence.recordCheck(now, nodes, sessionAge)
	m.noticeChanges(nodes)
	for _, node := range m.silence.dead(now, nodes) {
		if err := m.fenceNode(ctx, node); err != nil {
			return 0, err
		}
	}
	if now.Sub(m.ownersCheckedAt) >= ownerCheckInterval {
		if err := m.rescueLost(ctx, now); err != nil {
			return 0, err
		}
	}
	return m.silence.nextCheck(now, nodes), nil
}

// ownHeartbeatAge returns the age of this leader's own heartbeat.
func (m *nodeMonitor) ownHeartbeatAge(nodes []nodestore.Liveness) time.Duration {
	for _, node := range nodes {
		if node.Incarnation == m.fence.Incarnation {
			return node.HeartbeatAge
		}
	}
	return 0
}

// readNodes reads the liveness of the nodes in one round trip with the piggybacked
// queries. For a new observation, it also reads the age of the leader's session. If only
// piggybacked queries fail, readNodes returns no error: their owners run them again.
func (m *nodeMonitor) readNodes(ctx context.Context) (nodes []nodestore.Liveness, sessionAge time.Duration, err error) {
	batch, answered := &pgx.Batch{}, false
	if !m.silence.observing() {
		leaderstore.BatchSessionAge(batch, m.fence.Role, m.fence.Term, func(age time.Duration) { sessionAge = age })
	}
	nodestore.QueueAlive(batch, func(alive []nodestore.Liveness) { nodes, answered = alive, true })
	for _, add := range m.piggybacked {
		if add != nil {
			add(batch)
		}
	}
	if err := m.pool.SendBatch(ctx, batch).Close(); err != nil && !answered {
		return nil, 0, fmt.Errorf("check the nodes: %w", err)
	}
	return nodes, sessionAge, nil
}

// noticeChanges causes a check of the owners if the set of living processes has changed.
func (m *nodeMonitor) noticeChanges(nodes []nodestore.Liveness) {
	alive := make([]string, len(nodes))
	for i, node := range nodes {
		alive[i] = node.Incarnation
	}
	if !slices.Equal(alive, m.alive) {
		m.alive, m.ownersCheckedAt = alive, time.Time{}
	}
}

// fenceNode fences a dead node and ends its sessions.
func (m *nodeMonitor) fenceNode(ctx context.Context, node nodestore.Liveness) error {
	m.logger.WarnContext(ctx, "node is dead; rescuing its jobs", "dead_node", node.NodeID,
		"incarnation", node.Incarnation, "heartbeat_age", node.HeartbeatAge, "session_lock", node.SessionLock)
	m.ownersCheckedAt = time.Time{}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := m.fence.Do(ctx, m.pool, func(tx pgx.Tx, _ time.Time) error {
		_, err := nodestore.New(tx).Fence(ctx, node.Incarnation)
		return err
	})
	if err != nil {
		return err
	}
	return m.endSessions(ctx, node.Incarnation)
}

// rescueLost releases the running jobs of lost processes.
func (m *nodeMonitor) rescueLost(ctx context.Context, now time.Time) error {
	lost, err := m.lostProcesses(ctx)
	if err != nil {
		return err
	}
	for _, s := range lost {
		if err := m.rescueProcess(ctx, s); err != nil {
			return err
		}
	}
	if len(lost) == 0 {
		m.ownersCheckedAt = now
	}
	return nil
}

// lostProcesses returns the lost processes that have running jobs.
func (m *nodeMonitor) lostProcesses(ctx context.Context) ([]lostProcess, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	owners, err := jobstore.New(m.pool).RunningOwners(ctx)
	if err != nil || len(owners) == 0 {
		return nil, err
	}
	nodes, err := nodestore.New(m.pool).Recorded(ctx) // after the owners: see lostOwners
	if err != nil {
		return nil, err
	}
	return lostOwners(owners, nodes, m.silence.policy), nil
}

// rescueProcess releases the jobs of one lost process in several transactions, each with
// its own timeout. Committed transactions survive a later failure.
func (m *nodeMonitor) rescueProcess(ctx context.Context, s lostProcess) error {
	if s.incarnation != "" {
		endCtx, cancel := context.WithTimeout(ctx, stepTimeout)
		err := m.endSessions(endCtx, s.incarnation)
		cancel()
		if err != nil {
			return err
		}
	}
	for {
		watchdog.Report(ctx)
		found, err := m.size.Do(ctx, stepTimeout, func(ctx context.Context, limit int) (int, error) { return m.rescueBatch(ctx, s, limit) })
		if err != nil || found == 0 {
			return err
		}
	}
}

func (m *nodeMonitor) rescueBatch(ctx context.Context, s lostProcess, limit int) (found int, err error) {
	var orphans []jobstore.Orphan
	available := 0
	err = m.fence.Do(ctx, m.pool, func(tx pgx.Tx, now time.Time) (err error) {
		store := jobstore.New(tx)
		orphans, err = store.LockOrphans(ctx, s.clientID, limit)
		if err != nil || len(orphans) == 0 {
			return err
		}
		verdicts := make([]jobstore.Verdict, len(orphans))
		var queues []string
		for i, o := range orphans {
			if verdicts[i], err = verdictOn(o, s, now); err != nil {
				return err
			}
			if nextState(o) == rivertype.JobStateAvailable {
				available++
				queues = append(queues, o.Queue)
			}
		}
		if err := store.ReleaseOrphans(ctx, now, verdicts); err != nil {
			return err
		}
		if err := appendRescued(ctx, tx, m.fence, s, orphans); err != nil {
			return err
		}
		return store.NotifyAvailable(ctx, queues)
	})
	if err != nil || len(orphans) == 0 {
		return 0, err
	}
	m.count(s.nodeID, orphans, available)
	m.logger.InfoContext(ctx, "orphaned jobs released", "lost_node", s.nodeID, "incarnation", s.incarnation, "how", s.cause,
		"jobs", len(orphans), "available", available)
	return len(orphans), nil
}

// count counts released orphans and their lost attempts, because the lost node no longer
// can.
func (m *nodeMonitor) count(node string, orphans []jobstore.Orphan, available int) {
	for _, o := range orphans {
		m.metrics.JobFinished.WithLabelValues(o.Kind, jobstore.OutcomeLost).Inc()
		m.metrics.QueueJobs.Finished.WithLabelValues(o.Queue, jobstore.OutcomeLost).Inc()
		if node != "" {
			m.metrics.NodeJobs.Finished.WithLabelValues(node, jobstore.OutcomeLost).Inc()
		}
		if o.Cron != "" {
			m.metrics.CronJobs.Finished.WithLabelValues(m.metrics.CronLabel(o.Cron), jobstore.OutcomeLost).Inc()
		}
	}
	m.metrics.JobOrphaned.Add(float64(len(orphans)))
	m.metrics.JobRescued.Add(float64(available))
}

// endSessions ends the remaining sessions of a process and waits for their end. If they
// cannot be ended, the fences must suffice.
func (m *nodeMonitor) endSessions(ctx context.Context, incarnation string) error {
	for deadline := time.Now().Add(sessionEndTimeout); ; {
		found, permitted, err := endSessions(ctx, m.pool, incarnation)
		switch {
		case err != nil || found == 0 && permitted:
			return err
		case !permitted:
			m.logger.WarnContext(ctx, "missing privilege to end a dead node's sessions", "incarnation", incarnation)
			return nil
		case time.Now().After(deadline):
			m.logger.WarnContext(ctx, "sessions of a dead node did not end", "incarnation", incarnation, "sessions", found)
			return nil
		}
		if !watchdog.Sleep(ctx, sessionEndInterval) {
			return ctx.Err()
		}
	}
}
