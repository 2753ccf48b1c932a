package cronstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

const countRowsSQL = `SELECT count(*) FROM forge_crons`

const missingSQL = `
SELECT wanted.name FROM unnest($1::text[]) AS wanted (name)
WHERE NOT EXISTS (SELECT FROM forge_crons AS c WHERE c.name = wanted.name)
ORDER BY wanted.name`

// restoreRows inserts the missing rows of a configuration in force.
func (s *Store) restoreRows(ctx context.Context, a Applied) (Outcome, error) {
	outcome := Outcome{State: StateInForce, InForce: a.Hash}
	if a.preview {
		return outcome, nil
	}
	if err := postgres.Confirm(ctx, s.db); err != nil { // the response to an earlier request may have been lost
		return Outcome{}, err
	}
	if err := s.renameCluster(ctx, a); err != nil {
		return Outcome{}, err
	}
	missing, err := s.Missing(ctx, a.names)
	if err != nil {
		return Outcome{}, err
	}
	if len(missing) > 0 {
		outcome.Added = missing
	}
	if err := s.applyCrons(ctx, a.Crons, outcome); err != nil {
		return Outcome{}, err
	}
	if len(outcome.Added) == 0 {
		return outcome, nil
	}
	return outcome, s.announce(ctx, a, true, outcome)
}

// CountRows returns the number of rows of crons, also of removed ones.
func (s *Store) CountRows(ctx context.Context) (int64, error) {
	count, _, err := postgres.First(ctx, s.db, "count crons", pgx.RowTo[int64], countRowsSQL)
	return count, err
}

// Missing returns the crons that have no row, in order: the row was deleted, or the
// cron was never applied.
func (s *Store) Missing(ctx context.Context, crons []string) ([]string, error) {
	return postgres.Select(ctx, s.db, "find crons without a row", pgx.RowTo[string], missingSQL, crons)
}
