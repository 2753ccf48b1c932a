package postgres

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

	// A message that was not read within a minute was for a process that has ended.
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

// busyInterval is the interval of reads after a read that found messages: more
// messages usually follow.
const busyInterval = 50 * time.Millisecond

// maxInterval bounds the time between two reads.
const maxInterval = 500 * time.Millisecond

// PollInterval returns the interval of reads in a cluster whose leaders check their
// leadership at each check interval.
func PollInterval(check time.Duration) time.Duration { return min(check, maxInterval) }

// MessageQueryer reads messages: a pool or a connection.
type MessageQueryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// MessageExecer sends messages: a pool or a connection.
type MessageExecer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// SendMessage writes a message for the reader of the channel.
func SendMessage(ctx context.Context, db MessageExecer, channel, payload string) error {
	if _, err := db.Exec(ctx, sendSQL, channel, payload); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	return nil
}

// SendMessageInTerm writes a message to each channel if the term is current, and
// reports whether it is.
func SendMessageInTerm(ctx context.Context, db MessageExecer, role string, term int64, incarnation string, channels, payloads []string) (current bool, err error) {
	tag, err := db.Exec(ctx, sendInTermSQL, role, term, incarnation, channels, payloads)
	if err != nil {
		return false, fmt.Errorf("send message: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

type message struct {
	ID      int64
	Payload string
}

// TakeMessages deletes the messages of a channel and returns them in order.
func TakeMessages(ctx context.Context, db MessageQueryer, channel string) ([]string, error) {
	rows, err := db.Query(ctx, takeSQL, channel)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	messages, err := pgx.CollectRows(rows, pgx.RowToStructByPos[message])
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	slices.SortFunc(messages, func(a, b message) int { return cmp.Compare(a.ID, b.ID) })
	payloads := make([]string, len(messages))
	for i, m := range messages {
		payloads[i] = m.Payload
	}
	return payloads, nil
}
