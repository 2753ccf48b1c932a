package cronstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const editionSQL = `SELECT concat_ws(' ', count(*), max(updated_at)) FROM forge_crons`

// Edition identifies the state of all definitions: it changes whenever any of them
// is applied, paused, resumed or removed.
func Edition(ctx context.Context, db Queryer) (string, error) {
	editions, err := collect(ctx, db, pgx.RowTo[string], editionSQL)
	if err != nil {
		return "", fmt.Errorf("read the crons' edition: %w", err)
	}
	return editions[0], nil
}
