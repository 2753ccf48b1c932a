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

	"github.com/forge-scheduler/forge/internal/batchsize"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// signatureLook is the longest pause between two looks at who runs jobs,
	// while the set of living nodes does not change.
	signatureLook = 5 * time.Second
	// endingBound is how long a dead node's sessions are waited for, and
	// endingPause how often they are looked at. The fences hold without it.
	endingBound, endingPause = 2 * time.Second, 20 * time.Millisecond
)

// patrol looks after the nodes in one term. Only one goroutine uses it.
type patrol struct {
	pool    *pgxpool.Pool
	fence   leaderstore.Fence
	metrics *metrics.Metrics
	logger  *slog.Logger
	watch   watch
	along   []func(*pgx.Batch) // looks of others; nil: none
	size    *batchsize.Size

	// alive are the incarnations that the last look found.
	alive []string
	// checked is when the signatures were last found to be in order; zero: not
	// since something happened.
	checked time.Time
	// planned is when the look was to be.
	planned time.Time
}

// step looks at the nodes once, and does what follows.
func (p *patrol) step(ctx context.Context) (time.Duration, error) {
	pause, err := p.look(ctx)
	if err != nil {
		p.watch.broken()
		p.checked = time.Time{}
		return pause, err
	}
	p.planned = time.Now().Add(pause)
	return pause, nil
}

func (p *patrol) look(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	asking, cancel := context.WithTimeout(ctx, stepTimeout)
	nodes, steady, err := p.ask(asking)
	cancel()
	if err != nil {
		return 0, err
	}
	now := time.Now()
	p.watch.noteLateness(p.planned, began, now, p.ownBeat(nodes))
	p.watch.noteReturns(nodes)
	p.watch.looked(now, nodes, steady)
	p.notice(nodes)
	for _, node := range p.watch.dead(now, nodes) {
		if err := p.bury(ctx, node); err != nil {
			return 0, err
		}
	}
	if now.Sub(p.checked) >= signatureLook {
		if err := p.collect(ctx, now); err != nil {
			return 0, err
		}
	}
	return p.watch.nextLook(now, nodes), nil
}

// ownBeat is how old this leader's own heartbeat is.
func (p *patrol) ownBeat(nodes []nodestore.Liveness) time.Duration {
	for _, node := range nodes {
		if node.Incarnation == p.fence.Incarnation {
			return node.HeartbeatAge
		}
	}
	return 0
}

// ask reads the nodes' signs of life, for a new watch how long this leader's session
// has stood, and in the same round trip what others look for. These look for
// themselves when that fails.
func (p *patrol) ask(ctx context.Context) (nodes []nodestore.Liveness, steady time.Duration, err error) {
	batch, answered := &pgx.Batch{}, false
	if !p.watch.listens() {
		batch.Queue(steadySQL, p.fence.Role, p.fence.Term).QueryRow(func(row pgx.Row) error {
			var seconds float64
			err := row.Scan(&seconds)
			steady = time.Duration(seconds * float64(time.Second))
			return err
		})
	}
	nodestore.QueueAlive(batch, func(alive []nodestore.Liveness) { nodes, answered = alive, true })
	for _, add := range p.along {
		if add != nil {
			add(batch)
		}
	}
	if err := p.pool.SendBatch(ctx, batch).Close(); err != nil && !answered {
		return nil, 0, fmt.Errorf("look at the nodes: %w", err)
	}
	return nodes, steady, nil
}

// notice has the signatures checked when the set of living processes changed.
func (p *patrol) notice(nodes []nodestore.Liveness) {
	alive := make([]string, len(nodes))
	for i, node := range nodes {
		alive[i] = node.Incarnation
	}
	if !slices.Equal(alive, p.alive) {
		p.alive, p.checked = alive, time.Time{}
	}
}

// bury fences a dead node and ends its sessions.
func (p *patrol) bury(ctx context.Context, node nodestore.Liveness) error {
	p.logger.WarnContext(ctx, "node is dead, its jobs go to others", "dead_node", node.NodeID,
		"incarnation", node.Incarnation, "heartbeat_age", node.HeartbeatAge, "session_lock", node.SessionLock)
	p.checked = time.Time{}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	err := p.fence.Do(ctx, p.pool, func(tx pgx.Tx, _ time.Time) error {
		_, err := nodestore.Fence(ctx, tx, node.Incarnation)
		return err
	})
	if err != nil {
		return err
	}
	return p.endSessions(ctx, node.Incarnation)
}

// collect gives back the running jobs of processes that are gone.
func (p *patrol) collect(ctx context.Context, now time.Time) error {
	lost, err := p.lost(ctx)
	if err != nil {
		return err
	}
	for _, s := range lost {
		if err := p.rescue(ctx, s); err != nil {
			return err
		}
	}
	if len(lost) == 0 {
		p.checked = now
	}
	return nil
}

// lost returns the processes that are gone and have running jobs.
func (p *patrol) lost(ctx context.Context) ([]lostProcess, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	signed, err := signatures(ctx, p.pool)
	if err != nil || len(signed) == 0 {
		return nil, err
	}
	nodes, err := nodestore.List(ctx, p.pool) // after the signatures: see gone
	if err != nil {
		return nil, err
	}
	return gone(signed, nodes, p.watch.policy), nil
}

// rescue gives back the jobs of one process that is gone, in transactions that each
// have a time of their own: what is done when one fails stays.
func (p *patrol) rescue(ctx context.Context, s lostProcess) error {
	ending, cancel := context.WithTimeout(ctx, stepTimeout)
	err := p.endSessions(ending, s.incarnation)
	cancel()
	if err != nil {
		return err
	}
	for {
		progress.Report(ctx)
		found, err := p.size.Do(ctx, stepTimeout, func(ctx context.Context, most int) (int, error) { return p.rescueBatch(ctx, s, most) })
		if err != nil || found == 0 {
			return err
		}
	}
}

func (p *patrol) rescueBatch(ctx context.Context, s lostProcess, most int) (found int, err error) {
	var orphans []orphan
	available := 0
	err = p.fence.Do(ctx, p.pool, func(tx pgx.Tx, now time.Time) (err error) {
		orphans, err = orphansOf(ctx, tx, nodestore.ClientID(s.nodeID, s.incarnation), most)
		if err != nil || len(orphans) == 0 {
			return err
		}
		verdicts := make([]verdict, len(orphans))
		var queues []string
		for i, o := range orphans {
			if verdicts[i], err = o.judge(s, now); err != nil {
				return err
			}
			if o.next() == rivertype.JobStateAvailable {
				available++
				queues = append(queues, o.queue)
			}
		}
		if err := release(ctx, tx, now, verdicts); err != nil {
			return err
		}
		slices.Sort(queues)
		return notifyQueues(ctx, tx, slices.Compact(queues))
	})
	if err != nil || len(orphans) == 0 {
		return 0, err
	}
	p.count(orphans, available)
	p.logger.InfoContext(ctx, "orphaned jobs released", "lost_node", s.nodeID, "incarnation", s.incarnation, "how", s.how,
		"jobs", len(orphans), "available", available)
	return len(orphans), nil
}

// count counts orphans that were released, and their attempts for the node that can no
// longer do so.
func (p *patrol) count(orphans []orphan, available int) {
	for _, o := range orphans {
		p.metrics.JobFinished.WithLabelValues(o.kind, jobstore.OutcomeLost).Inc()
	}
	p.metrics.JobOrphaned.Add(float64(len(orphans)))
	p.metrics.JobRescued.Add(float64(available))
}

// endSessions ends what is left of a process, and waits until nothing is. A
// process that cannot be ended is left to the fences.
func (p *patrol) endSessions(ctx context.Context, incarnation string) error {
	for deadline := time.Now().Add(endingBound); ; {
		found, permitted, err := endSessions(ctx, p.pool, incarnation)
		switch {
		case err != nil || found == 0 && permitted:
			return err
		case !permitted:
			p.logger.WarnContext(ctx, "no right to end a dead node's sessions", "incarnation", incarnation)
			return nil
		case time.Now().After(deadline):
			p.logger.WarnContext(ctx, "sessions of a dead node would not end", "incarnation", incarnation, "sessions", found)
			return nil
		}
		if !progress.Sleep(ctx, endingPause) {
			return ctx.Err()
		}
	}
}
