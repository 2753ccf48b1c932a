// Package prober watches from outside who leads: it reads the leaders' rows and
// PostgreSQL's own list of locks every few milliseconds, on a connection of its own.
package prober

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/test/chaos/checker"
)

const (
	// every is the pause between two looks.
	every = 5 * time.Millisecond
	// readTimeout bounds one look: a server that is stopped does not answer.
	readTimeout = time.Second
)

const (
	// A leader holds an advisory lock for each role; the one of its node has two keys.
	lookSQL = `
SELECT clock_timestamp(), l.role, l.term, l.renewed_at,
       EXISTS (SELECT FROM pg_locks k WHERE k.pid = l.backend_pid AND k.locktype = 'advisory' AND k.objsubid = 1 AND k.granted)
FROM forge_leaders l
WHERE l.node_id IS NOT NULL`

	tenuresSQL = `
SELECT role, term, coalesce(extract(epoch FROM gap)::float8, -1),
       coalesce(end_reason IN ('resigned', 'stepped_down', 'transferred'), false)
FROM forge_leader_history ORDER BY role, term`
)

// key is a term of a role.
type key struct {
	role string
	term int64
}

// Prober is one that watches.
type Prober struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	seen    map[key]*checker.Sighting
}

// Start begins to watch. What the database does not answer is not seen.
func Start(ctx context.Context, db *pgxpool.Pool) *Prober {
	ctx, cancel := context.WithCancel(ctx)
	p := &Prober{cancel: cancel, seen: map[key]*checker.Sighting{}}
	p.running.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				p.look(ctx, db)
			}
		}
	})
	return p
}

// Stop ends the watch and returns what was seen.
func (p *Prober) Stop() []checker.Sighting {
	p.cancel()
	p.running.Wait()
	var all []checker.Sighting
	for _, s := range slices.Collect(maps.Values(p.seen)) {
		all = append(all, *s)
	}
	return all
}

func (p *Prober) look(ctx context.Context, db *pgxpool.Pool) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, err := db.Query(ctx, lookSQL)
	if err != nil {
		return
	}
	var at, renewed time.Time
	var k key
	var held bool
	led := map[key]bool{}
	_, err = pgx.ForEachRow(rows, []any{&at, &k.role, &k.term, &renewed, &held}, func() error {
		s := p.seen[k]
		if s == nil {
			s = &checker.Sighting{Role: k.role, Term: k.term}
			p.seen[k] = s
		}
		s.Renewed = renewed
		if held {
			s.Held, s.Gone = at, time.Time{}
			led[k] = true
		}
		return nil
	})
	if err != nil || at.IsZero() {
		return
	}
	for k, s := range p.seen {
		if !led[k] && s.Gone.IsZero() && !s.Held.IsZero() {
			s.Gone = at
		}
	}
}

// Tenures reads what forge recorded.
func Tenures(ctx context.Context, db *pgxpool.Pool) ([]checker.Tenure, error) {
	rows, err := db.Query(ctx, tenuresSQL)
	if err != nil {
		return nil, fmt.Errorf("read the history of leaders: %w", err)
	}
	tenures, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t checker.Tenure, err error) {
		var seconds float64
		err = row.Scan(&t.Role, &t.Term, &seconds, &t.GivenUp)
		t.Gap = time.Duration(seconds * float64(time.Second))
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the history of leaders: %w", err)
	}
	return tenures, nil
}
