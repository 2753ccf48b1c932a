package jobstore

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

// insertSQL inserts one job like River's statement, and sends its notification, so that
// one round trip is enough. {schema} is the schema with a dot. A job without a unique key
// conflicts with no other.
const insertSQL = `
INSERT INTO {schema}river_job (id, args, created_at, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags,
                       unique_key, unique_states)
VALUES (coalesce($1::bigint, nextval('{schema}river_job_id_seq'::regclass)), $2::text::jsonb, $3::timestamptz, $4::text,
        $5::smallint, $6::text::jsonb, $7::smallint, $8::text, $9::timestamptz, $10::text::{schema}river_job_state,
        $11::text[]::varchar(255)[], $12::bytea, nullif($13::integer, 0)::bit(8))`

// uniqueSQL changes nothing in the existing row, but returns it, and waits for a synchronous
// replica like a change.
const uniqueSQL = `
ON CONFLICT (unique_key)
    WHERE unique_key IS NOT NULL
      AND unique_states IS NOT NULL
      AND {schema}river_job_state_in_bitmask(unique_states, state)
    DO UPDATE SET kind = river_job.kind`

const insertedSQL = `
RETURNING ` + jobColumns + `, xmax <> 0, CASE WHEN $15::text <> '' THEN pg_notify($14::text, $15::text) IS NULL END`

// Inserter inserts single jobs for clients that use River's API.
type Inserter struct {
	plainSQL, uniqueSQL, deduplicatedSQL string
	channel                              string
}

// NewInserter returns an Inserter for the tables in the schema.
func NewInserter(schema string) *Inserter {
	named := strings.NewReplacer("{schema}", pgx.Identifier{schema}.Sanitize()+".")
	return &Inserter{
		plainSQL:  named.Replace(insertSQL + insertedSQL),
		uniqueSQL: named.Replace(insertSQL + uniqueSQL + insertedSQL),

		deduplicatedSQL: named.Replace(insertDeduplicatedSQL),

		channel: wire.Channel(schema, wire.RiverInsertChannel),
	}
}

// RowToInsert is a job as River's client inserts it.
type RowToInsert struct {
	ID                     *int64 // nil takes the next one
	Args, Metadata         []byte // JSON; empty means {}
	CreatedAt, ScheduledAt *time.Time
	Kind                   string
	MaxAttempts, Priority  int
	Queue, State           string
	Tags                   []string
	UniqueKey              []byte
	UniqueStates           byte
	// Notification is the payload of the notification; empty sends none.
	Notification string
}

// Insert inserts a job, or returns the duplicate that exists. db need not be a transaction:
// the job and its notification are one statement.
func (i *Inserter) Insert(ctx context.Context, db postgres.DB, r RowToInsert) (row Row, existing bool, err error) {
	sql, now := i.plainSQL, time.Now().UTC()
	if len(r.UniqueKey) > 0 {
		sql = i.uniqueSQL
	} else {
		r.UniqueKey = nil
	}
	if r.Tags == nil {
		r.Tags = []string{}
	}
	// JSON is text, so that pgx sends it correctly in all of its modes.
	err = db.QueryRow(ctx, sql, r.ID, object(r.Args), orNow(r.CreatedAt, now), r.Kind, min(r.MaxAttempts, math.MaxInt16), object(r.Metadata),
		r.Priority, r.Queue, orNow(r.ScheduledAt, now), r.State, r.Tags, r.UniqueKey, int32(r.UniqueStates), i.channel, r.Notification,
	).Scan(append(row.targets(), &existing, nil)...)
	return row, existing, err
}

func object(body []byte) string {
	if len(body) == 0 {
		return "{}"
	}
	return string(body)
}

func orNow(t *time.Time, now time.Time) time.Time {
	if t == nil {
		return now
	}
	return *t
}
