package cronstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// ErrNotFound means that the cron or configuration does not exist.
var ErrNotFound = errors.New("not found")

// Store reads and changes the crons of one database.
type Store struct{ db postgres.DB }

// New returns the store of a database, or of a transaction.
func New(db postgres.DB) *Store { return &Store{db} }

const clockSQL = `SELECT clock_timestamp()`

// QueueNow adds a statement to a batch that sets now to the database's clock, which
// determines what is due.
func QueueNow(batch *pgx.Batch, now *time.Time) {
	batch.Queue(clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(now) })
}

// Now reads the database's clock, which determines what is due.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return postgres.Now(ctx, s.db) }

// nullTime is a time whose zero is NULL in SQL.
type nullTime = zeronull.Timestamptz
