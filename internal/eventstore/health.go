package eventstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// RowQueryer is what one-row statements go through.
type RowQueryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const judgeSQL = `SELECT forge_judge_health() IS NOT NULL`

// JudgeHealth looks whether the cluster has become degraded or has recovered, and
// appends the event if nobody else has. judged is false when another transaction
// is looking at the same moment: what the caller's own changed may have escaped
// it.
func JudgeHealth(ctx context.Context, db RowQueryer) (judged bool, err error) {
	if err := db.QueryRow(ctx, judgeSQL).Scan(&judged); err != nil {
		return false, fmt.Errorf("judge the cluster's health: %w", err)
	}
	return judged, nil
}
