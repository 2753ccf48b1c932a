// Package mailbox owns forge_mail: it carries the small messages between the
// scheduler's leader and the nodes where NOTIFY is not heard, behind a pooler in
// transaction mode. A message has the channel and the payload that the
// notification would have; whoever takes it removes it. As with NOTIFY nothing
// here is authoritative, and a lost message is healed by the next: the table is
// not written to the log, and is empty after a crash of the database.
package mailbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	sendSQL = `INSERT INTO forge_mail (channel, payload) VALUES ($1, $2)`

	// A message that nobody took within a minute was for a process that is gone.
	sendInTermSQL = `
WITH f AS MATERIALIZED (
    SELECT FROM forge_leaders WHERE role = $1 AND term = $2 AND incarnation = $3
), swept AS (
    DELETE FROM forge_mail WHERE sent_at < clock_timestamp() - interval '1 minute'
)
INSERT INTO forge_mail (channel, payload)
SELECT m.channel, m.payload FROM f, unnest($4::text[], $5::text[]) AS m (channel, payload)`

	takeSQL = `DELETE FROM forge_mail WHERE channel = $1 RETURNING id, payload`
)

// quick is how soon mail is looked for again after some came: more follows.
const quick = 50 * time.Millisecond

// atMost bounds the time between two looks.
const atMost = 500 * time.Millisecond

// Interval is how often to look for mail in a cluster that checks its leadership
// each check.
func Interval(check time.Duration) time.Duration { return min(check, atMost) }

// Queryer is what mail is taken through: a pool or a connection.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Execer is what mail is sent through: a pool or a connection.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Send leaves a message for whoever takes from the channel.
func Send(ctx context.Context, db Execer, channel, payload string) error {
	if _, err := db.Exec(ctx, sendSQL, channel, payload); err != nil {
		return fmt.Errorf("send mail: %w", err)
	}
	return nil
}

// SendInTerm leaves a message on each channel if the term is current, and says
// whether it is.
func SendInTerm(ctx context.Context, db Execer, role string, term int64, incarnation string, channels, payloads []string) (current bool, err error) {
	tag, err := db.Exec(ctx, sendInTermSQL, role, term, incarnation, channels, payloads)
	if err != nil {
		return false, fmt.Errorf("send mail: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

type message struct {
	ID      int64
	Payload string
}

// Take removes the messages of a channel and returns them in their order.
func Take(ctx context.Context, db Queryer, channel string) ([]string, error) {
	rows, err := db.Query(ctx, takeSQL, channel)
	if err != nil {
		return nil, fmt.Errorf("take mail: %w", err)
	}
	messages, err := pgx.CollectRows(rows, pgx.RowToStructByPos[message])
	if err != nil {
		return nil, fmt.Errorf("take mail: %w", err)
	}
	slices.SortFunc(messages, func(a, b message) int { return cmp.Compare(a.ID, b.ID) })
	payloads := make([]string, len(messages))
	for i, m := range messages {
		payloads[i] = m.Payload
	}
	return payloads, nil
}
