package assign

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/tracing"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

// followUps are the times of further sweeps after the last notification, for events
// without one: River sends one notification for all inserts within a short interval, a
// claim commits shortly after its credit report, and an offer counts as lost after
// offerTimeout.
var followUps = [...]time.Duration{
	8 * time.Millisecond, 40 * time.Millisecond, 200 * time.Millisecond,
	offerTimeout + 10*time.Millisecond, 2*offerTimeout + 100*time.Millisecond,
}

// pendingOffer is the newest offer of a job.
type pendingOffer struct {
	at          time.Time
	incarnation string
}

// loop assigns jobs until the notifications are interrupted. Only the holder of the turn uses
// it: the goroutine of run except while it waits, or a Reservation.
type loop struct {
	turn     chan struct{} // has room for the holder
	stopped  bool          // run has returned
	reserved bool          // a Reservation was held during the wait

	pool         *pgxpool.Pool
	notifier     *postgres.Notifier
	subscription *postgres.Subscription
	fence        leaderstore.Fence
	schema       string
	metrics      *metrics.Metrics
	tracer       *tracing.Tracer
	logger       *slog.Logger
	delay        time.Duration // how long a notification may wait to be polled
	// offerTimeout equals the constant, except in tests.
	offerTimeout time.Duration

	nodes  *nodeTable
	limits *limits
	// pausing are the queues of which a part of the jobs is paused, and paused such jobs of the
	// pages that this step has read.
	pausing        []string
	paused         map[int64]bool
	queueScans     map[string]*queueScan
	pendingOffers  map[int64]pendingOffer
	pendingByQueue map[string]int // pending offers by queue, as of the last prune

	steps            int
	lastStep         time.Time
	lastNews         time.Time // when the last notification arrived
	followUp         int       // index of the next of followUps
	stepAgain        bool      // a notification arrived during the step
	nodesAt          time.Time // when to read the node list again; zero means now
	holdsReadAt      time.Time // when jobs were last read because of their holds
	prunedAt         time.Time
	recall           recallLimiter
	runningCountedAt time.Time // when the running jobs were counted by kind
	dueAt            time.Time // when the next job that was read early is due, or zero
	resumeAt         time.Time // when to continue with a backlog, or zero
	lastSafety       time.Time
	sweepTook        time.Duration // duration of the last sweep
	jobs             []job         // of the last sweep, to reuse the memory
	below            belowCheck
	index            indexBuild
	// cheapBelow equals the constant, except in tests.
	cheapBelow time.Duration
}

func (l *loop) run(ctx context.Context) error {
	l.turn <- struct{}{}
	defer func() {
		l.stopped = true
		l.release()
	}()
	stop, err := l.listen(ctx)
	if err != nil {
		return err
	}
	defer stop()
	background, endBackground := context.WithCancel(ctx)
	defer l.index.wait()
	defer l.below.wait()
	defer endBackground()
	l.lastNews = time.Now()
	for {
		if err := l.step(ctx); err != nil {
			return err
		}
		l.checkBelow(background)
		l.startIndexWork(background)
		if err := l.wait(ctx); err != nil {
			return err
		}
	}
}

// step reads the node list and the jobs, and sends offers.
func (l *loop) step(ctx context.Context) error {
	l.lastStep, l.stepAgain = time.Now(), false
	l.finishIndexWork(ctx)
	if err := l.readNodes(ctx); err != nil {
		return err
	}
	l.forgetRecalled()
	if err := l.lowerMarks(); err != nil {
		return err
	}
	l.nodes.expire(l.lastStep, l.claimTimeout())
	assigned, err := l.sweepAndPlace(ctx)
	if err != nil {
		return err
	}
	if err := l.recordStarvation(ctx, l.limits.waits.report(l.lastStep, l.metrics.LimitWait)); err != nil {
		return err
	}
	if err := l.offer(ctx, assigned); err != nil {
		return err
	}
	l.prune()
	l.steps++
	l.metrics.AssignmentStepSeconds.WithLabelValues().Observe(time.Since(l.lastStep).Seconds())
	return nil
}

func (l *loop) readNodes(ctx context.Context) error {
	if l.lastStep.Before(l.nodesAt) {
		return nil
	}
	var nodes []nodestore.Node
	var inForce []jobstore.Limit
	var version int64
	var pausing []string
	err := l.within(ctx, func(ctx context.Context) (err error) {
		if l.nodes.inForce, err = l.nodes.inForce.refresh(ctx, l.pool); err != nil {
			return err
		}
		// The version first: if the limits change in between, no offer under it can be claimed.
		if version, err = l.limitVersion(ctx); err != nil {
			return err
		}
		if inForce, err = jobstore.New(l.pool).Limits(ctx); err != nil {
			return err
		}
		if pausing, err = jobstore.New(l.pool).PausingQueues(ctx); err != nil {
			return err
		}
		nodes, err = nodestore.New(l.pool).Recorded(ctx)
		return err
	})
	if err != nil {
		return err
	}
	l.nodes.setNodes(nodes)
	l.pausing = pausing
	l.limits.set(inForce, version, l.nodes.members)
	l.nodesAt = l.lastStep.Add(nodesInterval)
	if version == 0 && len(inForce) > 0 {
		l.nodesAt = l.recall.next
	}
	queueScans := map[string]*queueScan{}
	for _, queue := range l.nodes.queues() {
		if queueScans[queue] = l.queueScans[queue]; queueScans[queue] == nil {
			queueScans[queue] = &queueScan{queue: queue}
		}
		queueScans[queue].heldUntil = time.Time{} // the limit may have changed
		if fair := queueScans[queue].fair; fair != nil {
			fair.retryAt = time.Time{} // so may the nodes and the pauses
		}
	}
	l.queueScans = queueScans
	return l.readFair(ctx)
}

// sweepAndPlace reads the queues that have credit and assigns jobs to members.
func (l *loop) sweepAndPlace(ctx context.Context) (map[*member]jobsByQueue, error) {
	l.limits.blocking, l.limits.freeAt = false, l.limits.later(l.lastStep)
	l.dueAt, l.resumeAt = time.Time{}, l.limits.freeAt
	scans, jobs, err := l.sweep(ctx)
	if len(scans) == 0 || err != nil {
		return nil, err
	}
	if l.nodes.inForce.outdated(jobs) {
		l.nodesAt, l.resumeAt = time.Time{}, l.lastStep.Add(stepInterval)
		return nil, nil
	}
	if err := l.countLimits(ctx, jobs); err != nil {
		return nil, err
	}
	if err := l.readPaused(ctx, jobs); err != nil {
		return nil, err
	}
	if err := l.recountRunning(ctx); err != nil {
		return nil, err
	}
	if err := l.drainNotifications(ctx); err != nil { // credit that has arrived in the meantime
		return nil, err
	}
	if counting := l.nodes.counting(l.lastStep); l.limits.outdated || counting != l.limits.counting {
		l.limits.setCounting(counting)
		l.nodesAt, l.resumeAt = time.Time{}, l.lastStep.Add(stepInterval)
		return nil, nil
	}
	assigned := l.place(scans, jobs)
	l.finishScans(scans, len(assigned) > 0)
	l.logUnworked(ctx)
	return assigned, nil
}

// forgetRecalled forgets the offers that cannot be claimed any more, so that their jobs may be offered
// again.
func (l *loop) forgetRecalled() {
	if len(l.limits.recalled) == 0 {
		return
	}
	for id := range l.limits.recalled {
		if offer, ok := l.pendingOffers[id]; ok {
			offer.at = l.lastStep.Add(-l.claimTimeout())
			l.pendingOffers[id] = offer // the next offer goes to another node, if one can take it
		}
	}
	for _, q := range l.queueScans {
		if q.fair != nil {
			q.fair.offered = slices.DeleteFunc(q.fair.offered, func(o offeredTurn) bool { return l.limits.recalled[o.id] })
		}
	}
	clear(l.limits.recalled)
}

// countLimits reads what decides whether the jobs have a place in their limits.
func (l *loop) countLimits(ctx context.Context, jobs []job) error {
	if l.limits.version == 0 || !l.limits.anyLimited(jobs) {
		return nil
	}
	err := l.within(ctx, func(ctx context.Context) error {
		return l.limits.read(ctx, l.pool, jobs, l.lastStep, l.claimTimeout(), l.needsPlace)
	})
	if l.limits.recallDue {
		l.nodesAt = earliest(l.nodesAt, l.recall.next)
	}
	return err
}

// limitVersion returns the version of the limits for the next offers. If earlier offers must not be
// claimed any more, it recalls them. If claims delay that, the places of these offers stay taken, and
// after the beginning of a loop, of which nothing is known, the version is zero.
func (l *loop) limitVersion(ctx context.Context) (version int64, err error) {
	store := jobstore.New(l.pool)
	version, limited, err := store.LimitVersion(ctx)
	if err != nil || !limited {
		return version, err
	}
	begins := l.limits.version == 0
	if l.recall.isDue(begins, l.limits.recallDue, l.lastStep) {
		recalled, err := store.RecallOffers(ctx, l.recall.timeout())
		if err == nil {
			l.recall.done(time.Now())
		}
		if !jobstore.IsLocked(err) {
			return recalled, err
		}
		l.logger.WarnContext(ctx, "limited jobs may wait: claims or a change of the limits hold a lock", "error", err)
		l.recall.delayed(time.Now())
	}
	if begins {
		return 0, nil
	}
	return version, nil
}

// readPaused reads which of the jobs a pause of a part of their queue holds back.
func (l *loop) readPaused(ctx context.Context, jobs []job) error {
	l.paused = nil
	var ids []int64
	for _, j := range jobs {
		if slices.Contains(l.pausing, j.queue) && l.needsPlace(j) {
			ids = append(ids, j.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return l.within(ctx, func(ctx context.Context) error {
		paused, err := jobstore.New(l.pool).PausedJobs(ctx, ids)
		l.paused = make(map[int64]bool, len(paused))
		for _, id := range paused {
			l.paused[id] = true
		}
		return err
	})
}

// needsPlace reports whether a job may be offered now: it is due, has no pending offer, and has no
// limit of which the version is unknown.
func (l *loop) needsPlace(j job) bool {
	return j.dueIn <= 0 && l.lastStep.Sub(l.pendingOffers[j.id].at) >= l.claimTimeout() && (l.limits.version != 0 || !l.limits.isLimited(j))
}

// plan returns the pages that are due: those by position first.
func (l *loop) plan() (scans []scanPage, byPosition int) {
	var turns []scanPage
	scans = l.holdScans()
	for queue, queueScan := range l.queueScans {
		room := l.nodes.room(queue)
		scans = append(scans, queueScan.scans(l.lastStep, room, l.pendingByQueue[queue], l.topEvery(queueScan))...)
		turns = append(turns, queueScan.turns(l.lastStep, room)...)
	}
	for i := range scans {
		scans[i].fromMarks = l.below.took > l.cheapBelow
	}
	return append(scans, turns...), len(scans)
}

// sweep reads the pages that are due: those in turns first, then the others by position.
func (l *loop) sweep(ctx context.Context) (scans []scanPage, jobs []job, err error) {
	scans, byPosition := l.plan()
	if len(scans) == 0 {
		return nil, nil, nil
	}
	jobs = l.jobs[:0]
	err = l.within(ctx, func(ctx context.Context) error {
		if jobs, err = l.sweepTurns(ctx, scans, byPosition, jobs); err != nil || byPosition == 0 {
			return err
		}
		began := time.Now()
		var scanned jobstore.Scanned
		if jobs, scanned, err = sweep(ctx, l.pool, scans[:byPosition], jobs); err != nil {
			return err
		}
		l.sweepTook = time.Since(began)
		l.below.estimate(l.sweepTook)
		noteScans(scans[:byPosition], scanned, l.lastStep)
		jobs = l.settleHolds(scans, jobs)
		return nil
	})
	l.jobs = jobs
	return scans, jobs, err
}

// topEvery is how often a queue with a backlog is read from the top. It is less often if
// that is slow, for example because a long transaction keeps dead rows there, and more often
// if limits hold jobs back there.
func (l *loop) topEvery(q *queueScan) time.Duration {
	if q.hasLimited {
		return l.limitedTopEvery()
	}
	return max(topInterval, topShare*l.sweepTook)
}

func (l *loop) limitedTopEvery() time.Duration {
	return max(limitedTopInterval, topShare*l.sweepTook)
}

// finishScans advances the queue scans, and sets when to continue with a backlog.
func (l *loop) finishScans(scans []scanPage, fruitful bool) {
	gap := fruitlessInterval
	if fruitful {
		gap = stepInterval
	}
	for _, s := range scans {
		s.queueScan.advance(s)
		if s.held {
			s.queueScan.heldUntil = l.lastStep.Add(s.heldFor)
		} else if s.queueScan.hasBacklog() && l.nodes.room(s.queueScan.queue) > 0 {
			l.resumeAt = earliest(l.resumeAt, l.lastStep.Add(gap))
		}
	}
	l.resumeAt = earliest(earliest(l.resumeAt, l.limits.freeAt), l.nextHoldScans())
	if l.limits.blocking && l.lastStep.Sub(l.lastNews) < limitChaseTime {
		l.resumeAt = earliest(l.resumeAt, l.lastStep.Add(recountInterval))
	}
	waiting := 0
	for _, queueScan := range l.queueScans {
		waiting += max(queueScan.waiting, queueScan.counting)
	}
	l.metrics.AssignmentWaiting.Set(float64(waiting))
}

// prune removes old pending offers from time to time, and counts the others. An offer is
// kept longer than its timeout, so that a lost job goes to another member.
func (l *loop) prune() {
	if l.lastStep.Sub(l.prunedAt) < l.claimTimeout()/2 {
		return
	}
	l.prunedAt = l.lastStep
	for id, f := range l.pendingOffers {
		if l.lastStep.Sub(f.at) > 4*l.claimTimeout() {
			delete(l.pendingOffers, id)
		}
	}
	l.pendingByQueue = map[string]int{}
	for _, m := range l.nodes.members {
		for _, offer := range m.offers {
			for queue, n := range offer.byQueue {
				l.pendingByQueue[queue] += n
			}
		}
	}
}

// wait returns when the next step is due: after a notification or at a time.
func (l *loop) wait(ctx context.Context) error {
	arrived := l.stepAgain
	for {
		until := l.nextStep()
		if arrived {
			until = l.lastStep.Add(stepInterval)
		}
		note, err := l.receive(ctx, until)
		switch {
		case err != nil:
			return err
		case note != nil:
			arrived = l.handleNotification(note) || arrived
		case !l.reserved || l.below.ended != nil && !l.below.running() || l.index.hasEnded():
			return nil
		}
		l.reserved = false
	}
}

// nextStep returns when the next step is due without a notification.
func (l *loop) nextStep() time.Time {
	next := l.lastStep.Add(sweepInterval)
	done := max(l.lastStep.Sub(l.lastNews), l.delay) // a poll comes before a shorter follow-up
	for l.followUp < len(followUps) && followUps[l.followUp] <= done {
		l.followUp++
	}
	if l.followUp < len(followUps) {
		next = earliest(next, l.lastNews.Add(followUps[l.followUp]))
	}
	for _, at := range []time.Time{l.dueAt, l.resumeAt, l.nodes.nextExpiry(l.claimTimeout()), l.nodesAt} {
		next = earliest(next, at)
	}
	return next
}

// within runs database work with a time limit. Each timeout doubles the limit of the next
// call, because starting again would take even longer on a slow database.
func (l *loop) within(ctx context.Context, work func(ctx context.Context) error) error {
	watchdog.Report(ctx)
	bounded, cancel := context.WithTimeout(ctx, l.nodes.timeout)
	defer cancel()
	err := work(bounded)
	switch {
	case err == nil:
		l.nodes.timeout = max(statementTimeout, l.nodes.timeout/2)
	case bounded.Err() != nil && ctx.Err() == nil:
		l.nodes.timeout = min(2*l.nodes.timeout, maxStatementTimeout)
	}
	return err
}
