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

const healthSQL = `
SELECT ARRAY (SELECT jsonb_array_elements_text(forge_health_causes())),
       EXISTS (SELECT FROM forge_health WHERE degraded_at IS NOT NULL)`

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

// Causes returns why the cluster is degraded; none: it is healthy. recorded is false
// while the newest event of the cluster's health says otherwise, because nobody has
// judged it since.
func Causes(ctx context.Context, db RowQueryer) (causes []string, recorded bool, err error) {
	var degraded bool
	if err := db.QueryRow(ctx, healthSQL).Scan(&causes, &degraded); err != nil {
		return nil, false, fmt.Errorf("read the cluster's health: %w", err)
	}
	return causes, degraded == (len(causes) > 0), nil
}
