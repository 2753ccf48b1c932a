package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/watchdog"
)

// statements send notifications. The second one sends several if a term is current, and
// affects no row otherwise.
type statements struct{ notify, notifyInTerm string }

var notifyStatements = statements{
	notify: `SELECT pg_notify($1, $2)`,
	// Notifications need not survive a crash, so the commit does not wait for the disk.
	notifyInTerm: `
WITH f AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
    FROM forge_leaders
    WHERE role = $1 AND term = $2 AND incarnation = $3
)
SELECT pg_notify(n.channel, n.payload)
FROM f, unnest($4::text[], $5::text[]) AS n (channel, payload)`,
}

var messageStatements = statements{
	notify: `INSERT INTO forge_mail (channel, payload) VALUES ($1, $2)`,
	// A message that was not read within a minute was for a process that has ended.
	notifyInTerm: `
WITH f AS MATERIALIZED (
    SELECT FROM forge_leaders WHERE role = $1 AND term = $2 AND incarnation = $3
), swept AS (
    DELETE FROM forge_mail WHERE sent_at < clock_timestamp() - interval '1 minute'
)
INSERT INTO forge_mail (channel, payload)
SELECT m.channel, m.payload FROM f, unnest($4::text[], $5::text[]) AS m (channel, payload)`,
}

const takeSQL = `
WITH taken AS (DELETE FROM forge_mail WHERE channel = ANY ($1) RETURNING id, channel, payload)
SELECT channel, payload FROM taken ORDER BY id`

const (
	// busyInterval is the interval of polls after a poll that found messages: more
	// messages usually follow.
	busyInterval = 50 * time.Millisecond
	// maxInterval is the maximum time between two polls.
	maxInterval = 500 * time.Millisecond
	// pollTimeout is the time limit of one poll.
	pollTimeout = 5 * time.Second
)

// Delay returns how long a notification may wait to be polled; 0 if LISTEN works.
func (h *Notifier) Delay() time.Duration { return h.pollInterval }

// Notify sends a notification.
func (h *Notifier) Notify(ctx context.Context, channel, payload string) error {
	if _, err := h.pool.Exec(ctx, h.statements.notify, channel, payload); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	return nil
}

// Queue adds a notification to a batch. It is sent when the batch's transaction commits.
func (h *Notifier) Queue(batch *pgx.Batch, channel, payload string) {
	batch.Queue(h.statements.notify, channel, payload)
}

// NotifyInTerm sends a notification to each channel if the term is current, and reports
// whether it is.
func (h *Notifier) NotifyInTerm(ctx context.Context, role string, term int64, incarnation string, channels, payloads []string) (current bool, err error) {
	tag, err := h.pool.Exec(ctx, h.statements.notifyInTerm, role, term, incarnation, channels, payloads)
	if err != nil {
		return false, fmt.Errorf("notify: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

// poll reads messages until ctx ends or a statement fails.
func (h *Notifier) poll(ctx context.Context) (connected bool, err error) {
	h.resetListening()
	var ticked time.Time
	for ctx.Err() == nil {
		waiting, done := h.interruptible(ctx)
		tick := time.Since(ticked) >= h.pollInterval
		found, err := h.pollOnce(ctx, tick)
		if err != nil {
			done()
			return connected, err
		}
		connected = true
		if tick {
			ticked = time.Now()
		}
		pause := h.pollInterval
		if found {
			pause = min(busyInterval, pause)
		}
		watchdog.Sleep(waiting, pause)
		done()
	}
	return true, ctx.Err()
}

// pollOnce delivers the messages of all channels. With tick set, the other channels get a
// notification without payload. It is not cancelled with ctx: that would close the
// connection, and a poll is short.
func (h *Notifier) pollOnce(ctx context.Context, tick bool) (found bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pollTimeout)
	defer cancel()
	channels, added := h.wanted()
	messages, err := Collect(ctx, h.pool, pgx.RowToAddrOfStructByPos[message], takeSQL, channels)
	if err != nil {
		return false, fmt.Errorf("poll: %w", err)
	}
	h.signalListening(added)
	delivered := map[string]bool{}
	for _, m := range messages {
		h.deliver(&pgconn.Notification{Channel: m.Channel, Payload: m.Payload})
		delivered[m.Channel] = true
	}
	for _, channel := range channels {
		if tick && !delivered[channel] {
			h.deliver(&pgconn.Notification{Channel: channel})
		}
	}
	return len(messages) > 0, nil
}

type message struct{ Channel, Payload string }
