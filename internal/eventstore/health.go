package eventstore

import (
	"context"
	"fmt"
)

const healthSQL = `
SELECT ARRAY (SELECT jsonb_array_elements_text(forge_health_causes())),
       EXISTS (SELECT FROM forge_health WHERE degraded_at IS NOT NULL)`

const judgeSQL = `SELECT forge_judge_health() IS NOT NULL`

// EvaluateHealth evaluates whether the cluster has become degraded or has recovered,
// and appends the event unless it is already recorded. evaluated is false if another
// transaction is evaluating at the same time; that transaction may not see the
// caller's changes.
func (s *Store) EvaluateHealth(ctx context.Context) (evaluated bool, err error) {
	if err := s.db.QueryRow(ctx, judgeSQL).Scan(&evaluated); err != nil {
		return false, fmt.Errorf("evaluate the cluster's health: %w", err)
	}
	return evaluated, nil
}

// Causes returns why the cluster is degraded; it is healthy if there are none.
// recorded is false while the newest health event differs, because the health was
// not evaluated since.
func (s *Store) Causes(ctx context.Context) (causes []string, recorded bool, err error) {
	var degraded bool
	if err := s.db.QueryRow(ctx, healthSQL).Scan(&causes, &degraded); err != nil {
		return nil, false, fmt.Errorf("read the cluster's health: %w", err)
	}
	return causes, degraded == (len(causes) > 0), nil
}
