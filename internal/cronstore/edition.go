package cronstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

const editionSQL = `SELECT concat_ws(' ', count(*), max(updated_at)) FROM forge_crons`

// Edition identifies the state of all definitions: it changes whenever any of them
// is applied, paused, resumed or removed.
func (s *Store) Edition(ctx context.Context) (string, error) {
	editions, err := postgres.Collect(ctx, s.db, pgx.RowTo[string], editionSQL)
	if err != nil {
		return "", fmt.Errorf("read the crons' edition: %w", err)
	}
	return editions[0], nil
}
