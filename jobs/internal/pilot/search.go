package pilot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/progress"
)

const (
	// searchInterval is how often the node searches for jobs that it holds without
	// knowing; unsureInterval is how often it does so while a claim that was given up may
	// still take effect.
	searchInterval = time.Minute
	unsureInterval = 5 * time.Second
	// maxFound is how many jobs one search finds.
	maxFound = 1000
)

// heldSQL lists jobs that the database has as this client's, and that are not known here.
const heldSQL = `
SELECT id, queue
FROM river_job
WHERE state = 'running' AND ` + lastClient + ` = @client::text AND id <> ALL (@known::bigint[])
LIMIT @most::int`

// Search finds the jobs that the database has as this node's and that nothing here knows
// of, until ctx ends: the server carried out a claim long after it was given up, or has
// lost a result. They are run. It looks once a minute, and every few seconds while a
// claim that was given up may still take effect.
func (p *Pilot) Search(ctx context.Context) {
	for last := time.Now(); progress.Sleep(ctx, p.unsureInterval); {
		if p.box.isUnsure() || time.Since(last) >= p.searchInterval {
			p.search(ctx)
			last = time.Now()
		}
	}
}

// search looks up the jobs that it finds as claims without a reply are looked up.
func (p *Pilot) search(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	var id int64
	var queue string
	rows, err := p.pool.Query(ctx, heldSQL, pgx.StrictNamedArgs{"client": p.clientID, "known": p.box.ours(), "most": maxFound})
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&id, &queue}, func() error {
			if p.box.suspect(queue, id) {
				p.logger.WarnContext(ctx, "job found that this node holds without knowing", "job_id", id)
				p.tap.wake(queue)
			}
			return nil
		})
	}
	if err != nil && ctx.Err() == nil {
		p.logger.WarnContext(ctx, "jobs that this node may hold not searched, will try again", "error", err)
	}
}
