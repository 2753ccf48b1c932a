package assign

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/hearing"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/internal/queuestore"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/leaderstore"
)

// followUps are when to look again after the last news, for what comes without
// any: River sends one notification for the inserts of a short while, a claim
// commits a moment after its credit, and a lost offer shows after offerTimeout.
var followUps = [...]time.Duration{
	8 * time.Millisecond, 40 * time.Millisecond, 200 * time.Millisecond,
	offerTimeout + 10*time.Millisecond, 2*offerTimeout + 100*time.Millisecond,
}

// flight is a job's newest offer.
type flight struct {
	at          time.Time
	incarnation string
}

// loop is the assigner's work as long as it hears without a break. Only run's
// goroutine touches it.
type loop struct {
	pool    *pgxpool.Pool
	hub     *hearing.Hub
	ear     ear
	poll    time.Duration // how often; 0: notifications are heard
	fence   leaderstore.Fence
	schema  string
	metrics *metrics.Metrics
	logger  *slog.Logger
	// offerTimeout is the constant, but in tests.
	offerTimeout time.Duration

	board   *board
	limits  *limits
	lanes   map[string]*lane
	flights map[int64]flight
	flying  map[string]int // flights by queue, of the last count

	turns      int
	lastTurn   time.Time
	news       time.Time // when anything last arrived
	followUp   int       // the next of followUps
	pressing   bool      // news came during the turn
	rosterAt   time.Time // when to read the roster again; zero: now
	prunedAt   time.Time
	crowdedAt  time.Time // when the running kinds were counted
	dueAt      time.Time // when the next job read ahead is due; zero: none
	again      time.Time // when to go on with a backlog; zero: none
	lastSafety time.Time
	sweepTook  time.Duration // the last one
}

func (l *loop) run(ctx context.Context) error {
	shut, err := l.openEar(ctx)
	if err != nil {
		return err
	}
	defer shut()
	l.news = time.Now()
	for {
		if err := l.turn(ctx); err != nil {
			return err
		}
		if err := l.wait(ctx); err != nil {
			return err
		}
	}
}

// turn does whatever there is to do now.
func (l *loop) turn(ctx context.Context) error {
	l.lastTurn, l.pressing = time.Now(), false
	if err := l.readRoster(ctx); err != nil {
		return err
	}
	l.board.expire(l.lastTurn, l.patience())
	assigned, err := l.sweepAndPlace(ctx)
	if err != nil {
		return err
	}
	if err := l.offer(ctx, assigned); err != nil {
		return err
	}
	l.prune()
	l.turns++
	return nil
}

func (l *loop) readRoster(ctx context.Context) error {
	if l.lastTurn.Before(l.rosterAt) {
		return nil
	}
	var nodes []nodestore.Node
	var inForce []queuestore.Limit
	err := l.within(ctx, func(ctx context.Context) (err error) {
		if l.board.inForce, err = l.board.inForce.refresh(ctx, l.pool); err != nil {
			return err
		}
		if inForce, err = queuestore.Limits(ctx, l.pool); err != nil {
			return err
		}
		nodes, err = nodestore.List(ctx, l.pool)
		return err
	})
	if err != nil {
		return err
	}
	l.board.seat(nodes)
	l.limits.set(inForce)
	l.rosterAt = l.lastTurn.Add(rosterInterval)
	lanes := map[string]*lane{}
	for _, queue := range l.board.queues() {
		if lanes[queue] = l.lanes[queue]; lanes[queue] == nil {
			lanes[queue] = &lane{queue: queue}
		}
	}
	l.lanes = lanes
	return nil
}

// sweepAndPlace reads the lanes that have credit and decides who gets what.
func (l *loop) sweepAndPlace(ctx context.Context) (map[*member]jobsByQueue, error) {
	l.dueAt, l.again, l.limits.holding = time.Time{}, time.Time{}, false
	var scans []scan
	for queue, lane := range l.lanes {
		scans = append(scans, lane.scans(l.lastTurn, l.board.room(queue), l.flying[queue], l.topEvery())...)
	}
	if len(scans) == 0 {
		return nil, nil
	}
	var jobs []job
	began := time.Now()
	err := l.within(ctx, func(ctx context.Context) (err error) {
		jobs, err = sweep(ctx, l.pool, scans)
		return err
	})
	if err != nil {
		return nil, err
	}
	l.sweepTook = time.Since(began)
	if l.board.inForce.outdated(jobs) {
		l.rosterAt, l.again = time.Time{}, l.lastTurn.Add(turnGap)
		return nil, nil
	}
	if l.limits.anyOn(jobs) {
		err := l.within(ctx, func(ctx context.Context) error { return l.limits.count(ctx, l.pool, l.lastTurn, l.patience()) })
		if err != nil {
			return nil, err
		}
	}
	if err := l.recrowd(ctx); err != nil {
		return nil, err
	}
	if err := l.takeNews(ctx); err != nil { // the credit that came meanwhile
		return nil, err
	}
	assigned := l.place(scans, jobs)
	l.finish(scans, len(assigned) > 0)
	l.tellUnworked(ctx)
	return assigned, nil
}

// topEvery is how often a queue with a backlog is read from the top: less often where
// that takes long, as where dead rows that a long transaction keeps lie there.
func (l *loop) topEvery() time.Duration { return max(topInterval, topShare*l.sweepTook) }

// place decides on the jobs in their order.
func (l *loop) place(scans []scan, jobs []job) map[*member]jobsByQueue {
	assigned := map[*member]jobsByQueue{}
	dry := map[string]bool{} // queues whose credit ran out
	for _, j := range jobs {
		s := &scans[j.scan]
		s.read++
		if dry[j.queue] {
			s.stopped = true
			continue
		}
		if !l.placeOne(s, j, assigned) {
			dry[j.queue], s.stopped = true, true
			continue
		}
		s.last = j.position
	}
	return assigned
}

// placeOne reports false when the job's queue has no credit or place left.
func (l *loop) placeOne(s *scan, j job, assigned map[*member]jobsByQueue) bool {
	if j.dueIn > 0 {
		l.dueAt = soonest(l.dueAt, time.Now().Add(j.dueIn))
		return true
	}
	before := l.flights[j.id]
	if l.lastTurn.Sub(before.at) < l.patience() {
		return true
	}
	groups := l.limits.on(j)
	switch g, full := l.limits.full(groups); {
	case full && g.scope == queuestore.ScopeQueue:
		s.held = true
		return false
	case full: // the jobs behind may have places
		s.unplaced++
		return true
	}
	m, credit := pick(j, l.board.members, l.board.strategy, before.incarnation)
	switch {
	case !credit:
		return false
	case m == nil:
		s.unplaced++
		if !l.board.works(j) {
			s.unworked = s.unworked.add(j.kind, 1)
		}
		return true
	}
	l.board.assign(m, j)
	l.limits.take(groups, j.id, l.lastTurn)
	l.flights[j.id] = flight{at: l.lastTurn, incarnation: m.incarnation}
	if assigned[m] == nil {
		assigned[m] = jobsByQueue{}
	}
	assigned[m][j.queue] = append(assigned[m][j.queue], j.id)
	return true
}

// finish moves the lanes on, and decides when a backlog is read further.
func (l *loop) finish(scans []scan, fruitful bool) {
	gap := fruitlessGap
	if fruitful {
		gap = turnGap
	}
	for _, s := range scans {
		s.lane.done(s)
		if s.held {
			s.lane.heldUntil = l.lastTurn.Add(recountInterval)
		} else if s.lane.backlog && l.board.room(s.lane.queue) > 0 {
			l.again = soonest(l.again, l.lastTurn.Add(gap))
		}
	}
	if l.limits.holding && l.lastTurn.Sub(l.news) < chase {
		l.again = soonest(l.again, l.lastTurn.Add(recountInterval))
	}
	waiting := 0
	for _, lane := range l.lanes {
		waiting += max(lane.waiting, lane.counting)
	}
	l.metrics.AssignmentWaiting.Set(float64(waiting))
}

// offer sends what was assigned, and asks members that should have reported.
func (l *loop) offer(ctx context.Context, assigned map[*member]jobsByQueue) error {
	safety := l.lastTurn.Sub(l.lastSafety) >= safetyInterval
	if safety {
		l.lastSafety = l.lastTurn
	}
	letters := l.board.letters(assigned, l.limits, l.board.silent(l.lastTurn, safety), l.lastTurn)
	if len(letters) == 0 {
		return nil
	}
	err := l.within(ctx, func(ctx context.Context) error { return l.send(ctx, letters) })
	if err != nil {
		return err
	}
	for _, letter := range letters {
		for _, ids := range letter.offer.Jobs {
			l.metrics.AssignmentOffers.Add(float64(len(ids)))
		}
	}
	return nil
}

// prune forgets old flights now and then, and counts those under way. A flight
// is kept beyond its timeout, so that a lost job goes to another member.
func (l *loop) prune() {
	if l.lastTurn.Sub(l.prunedAt) < l.patience()/2 {
		return
	}
	l.prunedAt = l.lastTurn
	for id, f := range l.flights {
		if l.lastTurn.Sub(f.at) > 4*l.patience() {
			delete(l.flights, id)
		}
	}
	l.flying = map[string]int{}
	for _, m := range l.board.members {
		for _, offer := range m.offers {
			for queue, n := range offer.byQueue {
				l.flying[queue] += n
			}
		}
	}
}

// wait returns when the next turn is due: on news, or by the clock.
func (l *loop) wait(ctx context.Context) error {
	arrived := l.pressing
	for {
		until := l.nextTurn()
		if arrived {
			until = l.lastTurn.Add(turnGap)
		}
		note, err := l.receive(ctx, until)
		switch {
		case err != nil:
			return err
		case note == nil:
			return nil
		}
		arrived = l.take(note) || arrived
	}
}

// receive returns a notification, or nil once until has come.
func (l *loop) receive(ctx context.Context, until time.Time) (*pgconn.Notification, error) {
	progress.Allow(ctx, time.Until(until))
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	note, err := l.ear.WaitForNotification(waiting)
	switch {
	case note != nil:
		return note, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded) && waiting.Err() != nil:
		return nil, nil
	}
	return nil, err
}

// nextTurn is when the clock wants a turn.
func (l *loop) nextTurn() time.Time {
	next := l.lastTurn.Add(safetyInterval)
	for l.followUp < len(followUps) && !l.news.Add(followUps[l.followUp]).After(l.lastTurn) {
		l.followUp++
	}
	if l.followUp < len(followUps) {
		next = soonest(next, l.news.Add(followUps[l.followUp]))
	}
	for _, at := range []time.Time{l.dueAt, l.again, l.board.nextExpiry(l.patience()), l.rosterAt} {
		next = soonest(next, at)
	}
	return next
}

// takeNews takes in what has arrived already, without waiting.
func (l *loop) takeNews(ctx context.Context) error {
	past, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
	defer cancel()
	for {
		note, err := l.ear.WaitForNotification(past)
		if errors.Is(err, hearing.ErrInterrupted) {
			return err
		}
		if note == nil || err != nil {
			return nil
		}
		l.pressing = l.take(note) || l.pressing
	}
}

// take takes a notification in and tells whether it calls for a turn.
func (l *loop) take(note *pgconn.Notification) bool {
	switch note.Channel {
	case wire.Channel(l.schema, wire.CreditChannel):
		// A report that cannot be read comes from a newer version; the member is
		// asked again in time.
		report, err := wire.Unmarshal[wire.Credit](note.Payload)
		wanted := report.Term != l.board.term || l.wantsCredit() // or the member is to be asked
		if err != nil || !l.board.credit(report, time.Now()) || !wanted {
			return false
		}
	case wire.Channel(l.schema, wire.RiverInsertChannel):
		if !l.works(note.Payload) {
			return false
		}
	case wire.Channel(l.schema, wire.NodeChannel), wire.Channel(l.schema, wire.CronChannel):
		l.rosterAt = time.Time{}
	}
	l.news, l.followUp = time.Now(), 0
	if l.poll > 0 { // the next look follows by itself
		l.followUp = len(followUps)
	}
	return true
}

// works says whether some member may work the queue of an insert notification, or
// whether that is not known.
func (l *loop) works(payload string) bool {
	var inserted struct {
		Queue string `json:"queue"`
	}
	err := json.Unmarshal([]byte(payload), &inserted)
	return err != nil || inserted.Queue == "" || len(l.lanes) == 0 || l.lanes[inserted.Queue] != nil
}

// wantsCredit says whether jobs wait for credit, as far as is known: a queue for
// which nobody had any was not read. The credit of members that have enough is taken
// in without a turn.
func (l *loop) wantsCredit() bool {
	if len(l.lanes) == 0 || l.limits.holding {
		return true
	}
	for queue, lane := range l.lanes {
		if lane.backlog || lane.waiting+lane.counting > 0 || lane.heldUntil.After(lane.topAt) || l.board.room(queue) <= 0 {
			return true
		}
	}
	return false
}

// within bounds what a turn asks of the database. After each time that it took too
// long it may take twice as long: to begin anew would take a slow database longer.
func (l *loop) within(ctx context.Context, work func(ctx context.Context) error) error {
	progress.Report(ctx)
	bounded, cancel := context.WithTimeout(ctx, l.board.timeout)
	defer cancel()
	err := work(bounded)
	switch {
	case err == nil:
		l.board.timeout = max(statementTimeout, l.board.timeout/2)
	case bounded.Err() != nil && ctx.Err() == nil:
		l.board.timeout = min(2*l.board.timeout, longestStatement)
	}
	return err
}
