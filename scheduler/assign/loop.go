package assign

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/progress"
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

// loop is the assigner's work on one connection. Only run's goroutine touches
// it.
type loop struct {
	conn    *pgx.Conn
	fence   leaderstore.Fence
	schema  string
	metrics *metrics.Metrics

	board   *board
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
	dueAt      time.Time // when the next job read ahead is due; zero: none
	again      time.Time // when to go on with a backlog; zero: none
	lastSafety time.Time
}

func (l *loop) run(ctx context.Context) error {
	if err := l.within(ctx, func(ctx context.Context) error { return listen(ctx, l.conn, l.schema) }); err != nil {
		return err
	}
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
	l.board.expire(l.lastTurn, offerTimeout)
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
	err := l.within(ctx, func(ctx context.Context) (err error) {
		nodes, err = nodestore.List(ctx, l.conn)
		return err
	})
	if err != nil {
		return err
	}
	l.board.seat(nodes)
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
	l.dueAt, l.again = time.Time{}, time.Time{}
	var scans []scan
	for queue, lane := range l.lanes {
		scans = append(scans, lane.scans(l.lastTurn, l.board.room(queue), l.flying[queue])...)
	}
	if len(scans) == 0 {
		return nil, nil
	}
	var jobs []job
	err := l.within(ctx, func(ctx context.Context) (err error) {
		jobs, err = sweep(ctx, l.conn, scans)
		return err
	})
	if err != nil {
		return nil, err
	}
	l.takeNews(ctx) // the credit that came meanwhile
	assigned := l.place(scans, jobs)
	l.finish(scans, len(assigned) > 0)
	return assigned, nil
}

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

// placeOne reports false when the job's queue has no credit left.
func (l *loop) placeOne(s *scan, j job, assigned map[*member]jobsByQueue) bool {
	if j.dueIn > 0 {
		l.dueAt = soonest(l.dueAt, time.Now().Add(j.dueIn))
		return true
	}
	before := l.flights[j.id]
	if l.lastTurn.Sub(before.at) < offerTimeout {
		return true
	}
	m, credit := pick(j, l.board.members, l.board.strategy, before.incarnation)
	switch {
	case !credit:
		return false
	case m == nil:
		s.unplaced++
		return true
	}
	l.board.assign(m, j.queue)
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
		if s.lane.backlog && l.board.room(s.lane.queue) > 0 {
			l.again = soonest(l.again, l.lastTurn.Add(gap))
		}
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
	letters := l.board.letters(assigned, l.board.silent(l.lastTurn, safety), l.lastTurn)
	if len(letters) == 0 {
		return nil
	}
	err := l.within(ctx, func(ctx context.Context) error { return send(ctx, l.conn, l.fence, l.schema, letters) })
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
	if l.lastTurn.Sub(l.prunedAt) < offerTimeout/2 {
		return
	}
	l.prunedAt = l.lastTurn
	for id, f := range l.flights {
		if l.lastTurn.Sub(f.at) > 4*offerTimeout {
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

// receive returns a notification, or nil once until has come. It reports while
// it waits.
func (l *loop) receive(ctx context.Context, until time.Time) (*pgconn.Notification, error) {
	for {
		progress.Report(ctx)
		report := time.Now().Add(progress.Interval(ctx))
		if !report.Before(until) {
			return l.receiveUntil(ctx, until)
		}
		if note, err := l.receiveUntil(ctx, report); note != nil || err != nil {
			return note, err
		}
	}
}

func (l *loop) receiveUntil(ctx context.Context, until time.Time) (*pgconn.Notification, error) {
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	note, err := l.conn.WaitForNotification(waiting)
	switch {
	case note != nil:
		return note, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(waiting.Err(), context.DeadlineExceeded) && !l.conn.IsClosed():
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
	for _, at := range []time.Time{l.dueAt, l.again, l.board.nextExpiry(offerTimeout), l.rosterAt} {
		next = soonest(next, at)
	}
	return next
}

// takeNews takes in what has arrived already, without waiting.
func (l *loop) takeNews(ctx context.Context) {
	past, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
	defer cancel()
	for {
		note, err := l.conn.WaitForNotification(past)
		if note == nil || err != nil {
			return
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
		if err != nil || !l.board.credit(report, time.Now()) {
			return false
		}
	case wire.Channel(l.schema, wire.NodeChannel):
		l.rosterAt = time.Time{}
	}
	l.news, l.followUp = time.Now(), 0
	return true
}

func (l *loop) within(ctx context.Context, work func(ctx context.Context) error) error {
	progress.Report(ctx)
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return work(ctx)
}
