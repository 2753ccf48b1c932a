package assign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/internal/wire"
)

// listen starts to listen for notifications.
func (l *loop) listen(ctx context.Context) (stop func(), err error) {
	l.subscription = l.notifier.Listen(l.channels()...)
	if err := l.within(ctx, l.subscription.AwaitListening); err != nil {
		l.subscription.Close()
		return nil, fmt.Errorf("listen for jobs and credit: %w", err)
	}
	return l.subscription.Close, nil
}

func (l *loop) channels() []string {
	var channels []string
	for _, name := range []string{wire.RiverInsertChannel, wire.RiverControlChannel, wire.CreditChannel, wire.NodeChannel, wire.CronChannel} {
		channels = append(channels, wire.Channel(l.schema, name))
	}
	return channels
}

// receive returns the next notification, or nil at the time until.
func (l *loop) receive(ctx context.Context, until time.Time) (*pgconn.Notification, error) {
	watchdog.Extend(ctx, time.Until(until))
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	l.below.wakes(cancel) // its result triggers a step, as does the end of a change of an index
	if l.index.hasEnded() {
		cancel()
	}
	l.release()
	note, err := l.subscription.WaitForNotification(waiting)
	watchdog.Pause(ctx) // a Reservation lasts as long as its commit
	l.turn <- struct{}{}
	watchdog.Report(ctx)
	switch {
	case note != nil:
		return note, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && errors.Is(err, waiting.Err()):
		return nil, nil
	}
	return nil, err
}

// drainNotifications handles the notifications that have arrived, without waiting.
func (l *loop) drainNotifications(ctx context.Context) error {
	past, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
	defer cancel()
	for {
		note, err := l.subscription.WaitForNotification(past)
		if errors.Is(err, postgres.ErrInterrupted) {
			return err
		}
		if note == nil || err != nil {
			return nil
		}
		l.stepAgain = l.handleNotification(note) || l.stepAgain
	}
}

// handleNotification handles a notification and reports whether it triggers a step.
func (l *loop) handleNotification(note *pgconn.Notification) bool {
	switch note.Channel {
	case wire.Channel(l.schema, wire.CreditChannel):
		// An unreadable report comes from a newer version. The leader requests the
		// member's credit again later.
		report, err := wire.Unmarshal[wire.Credit](note.Payload)
		wanted := report.Term != l.nodes.term || l.wantsCredit() // a report of another term triggers a credit request
		if err != nil || !l.nodes.recordCredit(report, time.Now()) || !wanted {
			return false
		}
	case wire.Channel(l.schema, wire.RiverInsertChannel):
		if !l.works(note.Payload) {
			return false
		}
	case wire.Channel(l.schema, wire.NodeChannel), wire.Channel(l.schema, wire.CronChannel):
		l.nodesAt = time.Time{}
	}
	l.lastNews, l.followUp = time.Now(), 0
	return true
}

// works reports whether a member works the queue of an insert notification, or whether
// that is unknown. If the notification names an earlier time, the queue is read from there.
func (l *loop) works(payload string) bool {
	var inserted wire.Inserted
	err := json.Unmarshal([]byte(payload), &inserted)
	q := l.queueScans[inserted.Queue]
	switch {
	case inserted.From.IsZero():
	case q != nil:
		q.readFrom(inserted.From)
	case inserted.Queue == "":
		for _, q := range l.queueScans {
			q.readFrom(inserted.From)
		}
	}
	return err != nil || inserted.Queue == "" || len(l.queueScans) == 0 || q != nil
}

// readFrom lowers the marks to a time. The epoch says that any job of the queue may have become free,
// so it also ends the pass of a fair queue.
func (q *queueScan) readFrom(at time.Time) {
	q.marks.lowerAll(at)
	if q.fair != nil && at.Unix() <= 0 {
		q.fair.endPass()
	}
}

// wantsCredit reports whether jobs may be waiting for credit. A queue without credit was
// not read, so it counts as waiting. Other credit is recorded without a step.
func (l *loop) wantsCredit() bool {
	if len(l.queueScans) == 0 || l.limits.blocking {
		return true
	}
	for queue, queueScan := range l.queueScans {
		if queueScan.hasBacklog() || queueScan.waiting+queueScan.counting > 0 || queueScan.heldUntil.After(queueScan.topReadAt) || l.nodes.room(queue) <= 0 {
			return true
		}
	}
	return false
}
