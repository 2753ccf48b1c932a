package cronstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Manual runs were not due in the stretch.
const dueInSQL = `
SELECT g.n - 1, t.verdict, sum(t.tick_count)::bigint
FROM unnest($1::timestamptz[], $2::timestamptz[]) WITH ORDINALITY AS g (after, until, n)
JOIN forge_cron_ticks AS t ON t.tick > g.after AND t.tick <= g.until
WHERE t.verdict NOT IN ('triggered', 'backfilled')
GROUP BY g.n, t.verdict`

// Stretch is a period: after After, up to and including Until.
type Stretch struct{ After, Until time.Time }

// DueIn counts by verdict the recorded ticks that were due in each stretch. A row
// for several ticks counts in the stretch of its first tick.
func (s *Store) DueIn(ctx context.Context, stretches []Stretch) ([]map[Verdict]int64, error) {
	after, until := make([]time.Time, len(stretches)), make([]time.Time, len(stretches))
	for i, s := range stretches {
		after[i], until[i] = s.After, s.Until
	}
	counts := make([]map[Verdict]int64, len(stretches))
	rows, err := s.db.Query(ctx, dueInSQL, after, until)
	if err != nil {
		return nil, fmt.Errorf("count the ticks of %d stretches: %w", len(stretches), err)
	}
	var n, ticks int64
	var verdict Verdict
	_, err = pgx.ForEachRow(rows, []any{&n, &verdict, &ticks}, func() error {
		if counts[n] == nil {
			counts[n] = map[Verdict]int64{}
		}
		counts[n][verdict] = ticks
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count the ticks of %d stretches: %w", len(stretches), err)
	}
	return counts, nil
}
