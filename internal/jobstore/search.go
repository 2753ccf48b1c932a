package jobstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Found is a page of a list of jobs.
type Found struct {
	Jobs []Job
	// Next is the BeforeID of the next page; 0: this is the last one. Only the newest jobs
	// have pages.
	Next int64
	// Since is the end of the jobs that were not compared with the slowest ones, because too
	// many have ended after it; zero: all were.
	Since time.Time
}

const (
	// fewExact and fewLossy are how many jobs a search reads through the indexes that find
	// single jobs, and through those that find the pages with a kind or a queue.
	fewExact, fewLossy = 100_000, 2_000
	// searchWindow is how many jobs one statement reads if the indexes find too many. A search
	// begins no further statement after searchTime, or after Filter.Within: Next continues it,
	// even if nothing was found.
	searchWindow = 20_000
	searchTime   = 60 * time.Millisecond
)

const estimateSQL = `EXPLAIN (FORMAT JSON) SELECT FROM river_job WHERE %s`

const windowSQL = `
SELECT coalesce(min(id), 0), count(*)
FROM (SELECT id FROM river_job WHERE $1::bigint = 0 OR id < $1 ORDER BY id DESC LIMIT $2) AS examined`

// Ids are given in the order of time, and created_at is not later than its id: it is when the
// transaction began. So if a job was added after an instant, all jobs with higher ids were given
// theirs after it, and end after it. The halves of the ids that remain end at such a job, or
// after all jobs. This is wrong for jobs whose creator sets created_at or id, and for ends by the
// clock of a node that is behind the database's by more than clockTolerance.
const laterSQL = `
WITH RECURSIVE halves (low, high) AS (
    SELECT (SELECT min(id) FROM river_job), (SELECT max(id) + 1 FROM river_job)
    UNION ALL
    SELECT CASE WHEN later THEN low ELSE id + 1 END, CASE WHEN later THEN middle ELSE high END
    FROM (SELECT low, high, low + (high - low) / 2 AS middle FROM halves WHERE low < high) AS h,
         LATERAL (SELECT id, %s AS later FROM river_job WHERE id >= middle ORDER BY id LIMIT 1) AS j
)
SELECT coalesce(min(high), 0) FROM halves`

const clockTolerance = "1 minute"

// OFFSET keeps the planner from reading all jobs by descending id, in the hope that the first
// ones match.
const searchSQL = `
       '{}'::jsonb, '{}'::jsonb[]
FROM (SELECT * FROM river_job WHERE %s OFFSET 0) AS river_job
WHERE %s
ORDER BY id DESC
LIMIT %d`

// Search returns a page of the jobs that match a filter, the newest first. It reads the jobs
// that the indexes find if they are few. Otherwise it reads the newest jobs, in parts, for a
// limited time: a page may then hold fewer jobs than the limit although others follow. Of
// other orders it returns the first jobs.
func (s *Store) Search(ctx context.Context, f Filter) (found Found, err error) {
	limit := min(cmp.Or(f.Limit, defaultLimit), maxLimit)
	switch f.Sort {
	case Slowest:
		return s.slowest(ctx, f, limit)
	case Waiting:
		return s.longestWaiting(ctx, f, limit)
	case "", Newest:
	default:
		return found, fmt.Errorf("sort jobs: unknown order %q", f.Sort)
	}
	if err := s.skipLater(ctx, &f); err != nil {
		return found, err
	}
	few, rows, err := s.findsFew(ctx, f)
	switch {
	case err != nil:
		return found, err
	case few && rows > searchWindow:
		return s.searchNewestFirst(ctx, f, limit)
	case few:
		found.Jobs, err = s.searchAmong(ctx, f, 0, limit)
	case f.Where == nil:
		found.Jobs, err = s.List(ctx, f)
	default:
		return s.searchInParts(ctx, f, limit)
	}
	found.endAt(f, limit)
	return found, err
}

// skipLater lowers BeforeID so that a search for jobs that ended until an instant does not read
// those that were added after it.
func (s *Store) skipLater(ctx context.Context, f *Filter) error {
	later := &conditions{}
	for _, t := range f.Where.Of("until") {
		later.addInstant(t, "created_at > $$ + interval '"+clockTolerance+"'")
	}
	if len(later.sql) == 0 {
		return nil
	}
	var end int64
	if err := s.db.QueryRow(ctx, fmt.Sprintf(laterSQL, strings.Join(later.sql, " OR ")), later.planned()...).Scan(&end); err != nil {
		return fmt.Errorf("search jobs: %w", err)
	}
	if end != 0 && (f.BeforeID == 0 || end < f.BeforeID) {
		f.BeforeID = end
	}
	return nil
}

// searchNewestFirst reads all that the indexes find only if the newest jobs do not fill the
// page.
func (s *Store) searchNewestFirst(ctx context.Context, f Filter, limit int) (found Found, err error) {
	var lowest int64
	var examined int
	if err := s.db.QueryRow(ctx, windowSQL, f.BeforeID, searchWindow).Scan(&lowest, &examined); err != nil {
		return found, fmt.Errorf("search jobs: %w", err)
	}
	if found.Jobs, err = s.searchAmong(ctx, f, lowest, limit); err == nil && len(found.Jobs) < limit && examined == searchWindow {
		found.Jobs, err = s.searchAmong(ctx, f, 0, limit)
	}
	found.endAt(f, limit)
	return found, err
}

// searchInParts reads the newest jobs in parts until the page is full or the time is up.
func (s *Store) searchInParts(ctx context.Context, f Filter, limit int) (found Found, err error) {
	for began := time.Now(); ; {
		var lowest int64
		var examined int
		if err := s.db.QueryRow(ctx, windowSQL, f.BeforeID, searchWindow).Scan(&lowest, &examined); err != nil {
			return Found{}, fmt.Errorf("search jobs: %w", err)
		}
		jobs, err := s.searchAmong(ctx, f, lowest, limit-len(found.Jobs))
		if err != nil {
			return Found{}, err
		}
		found.Jobs, f.BeforeID = append(found.Jobs, jobs...), lowest
		if found.endAt(f, limit); found.Next != 0 || examined < searchWindow {
			return found, nil
		}
		if time.Since(began) > cmp.Or(f.Within, searchTime) {
			found.Next = lowest
			return found, nil
		}
	}
}

// endAt sets Next if the page is full.
func (p *Found) endAt(f Filter, limit int) {
	if n := len(p.Jobs); n > 0 && (n >= limit || f.EndsEarly(p.Jobs)) {
		p.Next = p.Jobs[n-1].ID
	}
}

// findsFew reports whether the indexes find few jobs for a filter, and how many, as the planner
// estimates.
func (s *Store) findsFew(ctx context.Context, f Filter) (few bool, rows float64, err error) {
	exact, lossy := &conditions{}, &conditions{}
	exact.addExact(f)
	lossy.addLossy(f)
	for c, most := range map[*conditions]float64{exact: fewExact, lossy: fewLossy} {
		if len(c.sql) == 0 {
			continue
		}
		var plan []struct {
			Plan struct {
				Rows float64 `json:"Plan Rows"`
			}
		}
		err := s.db.QueryRow(ctx, fmt.Sprintf(estimateSQL, c), append([]any{pgx.QueryExecModeExec}, c.args...)...).Scan(&plan)
		if err != nil {
			return false, 0, fmt.Errorf("plan a search for jobs: %w", err)
		}
		if len(plan) == 1 && plan[0].Plan.Rows <= most {
			return true, plan[0].Plan.Rows, nil
		}
	}
	return false, 0, nil
}

// searchAmong returns the jobs from an id on that match the filter, at most limit.
func (s *Store) searchAmong(ctx context.Context, f Filter, lowest int64, limit int) ([]Job, error) {
	indexed := &conditions{}
	if lowest != 0 {
		indexed.add("id >= $$", lowest)
	}
	if f.BeforeID != 0 {
		indexed.add("id < $$", f.BeforeID)
	}
	indexed.addExact(f)
	indexed.addLossy(f)
	others := &conditions{before: len(indexed.args)}
	others.addOthers(f.Where)
	sql := beforeArgsSQL + argsSQL[f.Args] + fmt.Sprintf(afterArgsSQL+searchSQL, maxListedError, indexed, others, limit)
	rows, err := s.db.Query(ctx, sql, slices.Concat([]any{pgx.QueryExecModeExec}, indexed.args, others.args)...)
	if err != nil {
		return nil, fmt.Errorf("search jobs: %w", err)
	}
	jobs, err := collectJobs(rows, f.MaxArgs)
	if err != nil {
		return nil, fmt.Errorf("search jobs: %w", err)
	}
	return jobs, nil
}
