package jobstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func where(t *testing.T, text string) jobstore.Filter {
	t.Helper()
	parsed, err := filter.Parse(text, jobstore.Keys)
	if err != nil {
		t.Fatal(err)
	}
	return jobstore.Filter{}.Narrow(parsed)
}

// insertForSearch adds jobs that differ in everything that filters name.
func insertForSearch(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	exec(t, pool, `
		INSERT INTO river_job (id, args, kind, queue, state, max_attempts, attempt, attempted_by, created_at, attempted_at, finalized_at, scheduled_at, errors, tags, metadata)
		SELECT id, '{}', kind, queue, state::river_job_state, 1, 1, ARRAY[client], now() - interval '4 h', now() - took::interval - ended::interval,
		       CASE WHEN state IN ('completed', 'discarded', 'cancelled') THEN now() - ended::interval END, now() + interval '1 day',
		       CASE WHEN error <> '' THEN ARRAY[jsonb_build_object('attempt', 1, 'error', error, 'at', now())] END, tags::text[],
		       CASE WHEN cron <> '' THEN jsonb_build_object('forge:cron', cron) ELSE '{}' END
		FROM (VALUES
		    (1, 'send_mail', 'mail',    'completed', 'node-2-00000000000000aa', '1 s',  '3 h',  '',                  '{}',          'nightly'),
		    (2, 'send_sms',  'mail',    'completed', 'node-1-00000000000000aa', '30 s', '1 h',  '',                  '{billing,eu}', 'nightly-2'),
		    (3, 'sendXmail', 'default', 'discarded', 'node-2-x-00000000000000aa', '2 s', '1 h', 'Read TIMEOUT of 5%', '{}',          ''),
		    (4, 'report',    'default', 'cancelled', 'other',                   '1 s',  '3 h',  'cancelled by ada',  '{eu}',         ''),
		    (5, 'report',    'slow',    'running',   'node-2-00000000000000bb', '1 h',  '0',    '',                  '{}',           'hourly'),
		    (6, 'report',    'default', 'retryable', 'node-2-00000000000000bb', '1 h',  '0',    'time out',          '{}',           ''),
		    (7, 'a*b',       'default', 'scheduled', '',                        '1 h',  '0',    '',                  '{}',           '')
		) AS j (id, kind, queue, state, client, took, ended, error, tags, cron)`)
	exec(t, pool, `INSERT INTO forge_claims (client_id, ids) VALUES ('node-2-00000000000000bb', ARRAY[5]::bigint[])`)
}

func TestSearch(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertForSearch(t, pool)
	store := jobstore.New(pool)
	for text, want := range map[string][]int64{
		"kind:send_mail":                  {1},
		"kind:send*":                      {3, 2, 1},
		"kind:send_*":                     {2, 1},
		"kind:*mail":                      {3, 1},
		"kind:Send*":                      nil,
		`kind:"a*b"`:                      {7},
		"kind:send_mail kind:rep*":        {6, 5, 4, 1},
		"kind:send_mail kind:report":      {6, 5, 4, 1},
		"queue:mail kind:send*":           {2, 1},
		"queue:s*":                        {5},
		"cron:nightly":                    {1},
		"cron:nightly*":                   {2, 1},
		"cron:*":                          {5, 2, 1},
		"node:node-2":                     {6, 5, 1},
		"node:node-2*":                    {6, 5, 3, 1},
		"node:other":                      {4},
		"state:running":                   {5},
		"state:completed state:cancelled": {4, 2, 1},
		"state:completed state:cancelled node:o*": {4},
		"took:>10s":                      {5, 2},
		"took:>1500ms took:<40s":         {3, 2},
		"took:<2h":                       {5, 4, 3, 2, 1},
		"error:timeout":                  {3},
		"error:5%":                       {3},
		"error:read*5":                   {3},
		`error:"time out" error:timeout`: {6, 3},
		"tag:billing":                    {2},
		"tag:e*":                         {4, 2},
		"tag:eu node:other":              {4},
		"since:2h":                       {7, 6, 5, 3, 2},
		"since:2h took:>10s":             {5, 2},
		"since:2h state:completed":       {2},
		"until:2h":                       {4, 1},
		"since:4h until:2h":              {4, 1},
		"until:" + time.Now().Add(-2*time.Hour).Format(time.RFC3339): {4, 1},
		"": {7, 6, 5, 4, 3, 2, 1},
	} {
		f := where(t, text)
		var ids []int64
		for f.Limit = 2; ; { // page by page
			found, err := store.Search(t.Context(), f)
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			for _, job := range found.Jobs {
				ids = append(ids, job.ID)
			}
			if f.BeforeID = found.Next; f.BeforeID == 0 {
				break
			}
		}
		if diff := cmp.Diff(want, ids); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestSearchSorts(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertForSearch(t, pool)
	exec(t, pool, `
		INSERT INTO river_job (id, args, kind, queue, priority, state, max_attempts, scheduled_at)
		VALUES (11, '{}', 'report', 'a', 2, 'available', 1, now() - interval '2 h'), (12, '{}', 'report', 'b', 1, 'available', 1, now() - interval '3 h'),
		       (13, '{}', 'send_mail', 'a', 1, 'available', 1, now() - interval '1 h'), (14, '{}', 'send_mail', 'a', 1, 'available', 1, now() - interval '4 h')`)
	for text, want := range map[string][]int64{
		"slowest ":                              {5, 2, 3, 4, 1},
		"slowest since:2h":                      {5, 2, 3},
		"slowest since:2h state:completed":      {2},
		"slowest until:2h":                      {4, 1},
		"slowest kind:send*":                    {2, 3, 1},
		"slowest cron:nightly-2":                {2},
		"slowest queue:default":                 {3, 4},
		"slowest state:running state:discarded": {5, 3},
		"slowest state:scheduled":               nil,
		"waiting ":                              {14, 12, 11, 13},
		"waiting kind:report":                   {12, 11},
		"waiting queue:a kind:send*":            {14, 13},
		"waiting state:completed":               nil,
		"newest kind:send_mail state:available": {14, 13},
	} {
		sort, terms, _ := strings.Cut(text, " ")
		f := where(t, terms)
		f.Sort = jobstore.Sort(sort)
		for _, limit := range []int{0, 2} {
			f.Limit = limit
			found, err := jobstore.New(pool).Search(t.Context(), f)
			var ids []int64
			for _, job := range found.Jobs {
				ids = append(ids, job.ID)
			}
			if limit != 0 {
				want = want[:min(len(want), limit)]
			}
			if diff := cmp.Diff(want, ids); diff != "" || err != nil || !found.Since.IsZero() {
				t.Errorf("%q: %v, since %v (-want +got):\n%s", text, err, found.Since, diff)
			}
		}
	}
	if _, err := jobstore.New(pool).Search(t.Context(), jobstore.Filter{Sort: "random"}); err == nil {
		t.Error("it knows an order that it does not have")
	}
}

// The slowest of many jobs are those of the newest ones.
func TestSlowestOfMany(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
		INSERT INTO river_job (id, args, kind, state, max_attempts, attempted_at, finalized_at)
		SELECT i, '{}', 'k' || i % 2, 'completed', 1, now() - i * interval '2 ms', now() - i * interval '1 ms'
		FROM generate_series(1, 100100) AS i`)
	exec(t, pool, `VACUUM ANALYZE river_job`)
	for text, want := range map[string]int64{"": 50000, "kind:k1": 49999, "until:99s": 100100} {
		f := where(t, text)
		f.Sort, f.Limit = jobstore.Slowest, 1
		found, err := jobstore.New(pool).Search(t.Context(), f)
		if err != nil || len(found.Jobs) != 1 || found.Jobs[0].ID != want || found.Since.IsZero() != (text == "until:99s") {
			t.Errorf("%q: %+v, %v, want job %d", text, found, err, want)
		}
	}
}

// An action in bulk changes what the search of its filter shows.
func TestActOnSearched(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		action jobstore.Action
		ids    []int64
	}{
		"kind:rep* node:node-2":           {jobstore.Cancel, []int64{5, 6}},
		"error:time* ":                    {jobstore.Retry, []int64{3}},
		"state:cancelled state:discarded": {jobstore.Retry, []int64{3, 4}},
		"took:>10s state:completed":       {jobstore.Retry, []int64{2}},
		"kind:nothing*":                   {jobstore.Discard, nil},
	} {
		pool := pgtest.Pool(t)
		insertForSearch(t, pool)
		store := jobstore.New(pool)
		f := where(t, text)
		counted, err := store.CountMatching(t.Context(), want.action, f, jobstore.Matching{})
		if err != nil || counted.Jobs != int64(len(want.ids)) {
			t.Errorf("%q: %+v, %v, want %d jobs", text, counted, err, len(want.ids))
		}
		changed, err := store.ActOnAll(t.Context(), jobstore.Order{Action: want.action, By: "ada"}, f, counted)
		if err != nil || changed != len(want.ids) {
			t.Errorf("%q: %d changed, %v, want %d", text, changed, err, len(want.ids))
		}
		var ids []int64
		if len(want.ids) > 0 {
			err = pool.QueryRow(t.Context(), `SELECT ARRAY(SELECT jsonb_array_elements(data -> 'ids')::bigint ORDER BY 1) FROM forge_events WHERE data ->> 'by' = 'ada'`).Scan(&ids)
		}
		if diff := cmp.Diff(want.ids, ids); diff != "" || err != nil {
			t.Errorf("%q, %v (-want +got):\n%s", text, err, diff)
		}
	}
}

// A search for few of many jobs reads them in parts, and its pages find each once.
func TestSearchInParts(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
		INSERT INTO river_job (args, kind, queue, state, max_attempts, finalized_at)
		SELECT '{}', CASE WHEN i % 30000 = 7 THEN 'rare' ELSE 'k' || i % 5 END, 'default', 'completed', 1, now()
		FROM generate_series(1, `+fmt.Sprint(2*manyJobs)+`) AS i`)
	exec(t, pool, `VACUUM ANALYZE river_job`)
	store := jobstore.New(pool)
	for text, want := range map[string][]int64{"kind:ra*": {60007, 30007, 7}, "kind:nothing*": nil, "kind:ra* since:1h": {60007, 30007, 7}} {
		var ids []int64
		f := where(t, text)
		for pages := 0; ; pages++ {
			found, err := store.Search(t.Context(), f)
			if err != nil || pages > 10 {
				t.Fatalf("%q: %v after %d pages", text, err, pages)
			}
			for _, job := range found.Jobs {
				ids = append(ids, job.ID)
			}
			if f.BeforeID = found.Next; f.BeforeID == 0 {
				break
			}
		}
		if diff := cmp.Diff(want, ids); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// A search for jobs that ended until an instant begins at those that were added before it, in
// whatever order they ended, and finds jobs that a long transaction added, or that ended by a
// clock that is almost a minute behind.
func TestSearchUntil(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
		INSERT INTO river_job (id, args, kind, state, max_attempts, created_at, finalized_at)
		SELECT 3 * i, '{}', 'k', 'completed', 1, at - CASE WHEN i % 100 = 0 THEN interval '1 h' ELSE '0' END, at + i % 7 * interval '1 h'
		FROM generate_series(1, 60000) AS i, LATERAL (SELECT now() - i * interval '-1 s' - interval '60000 s' AS at) AS a`)
	exec(t, pool, `
		INSERT INTO river_job (id, args, kind, state, max_attempts, created_at, finalized_at)
		VALUES (3 * 24050 + 1, '{}', 'k', 'completed', 1, now() - interval '35950 s', now() - interval '36005 s')`)
	exec(t, pool, `VACUUM ANALYZE river_job`)
	store := jobstore.New(pool)
	now := time.Now()
	for _, spans := range [][2]time.Duration{{0, 100}, {10, 100}, {16, 100}, {17, 100}, {14, 16}} {
		until, since := now.Add(-spans[0]*time.Hour), now.Add(-spans[1]*time.Hour)
		text := "until:" + until.Format(time.RFC3339Nano)
		if spans[1] < 100 {
			text += " since:" + since.Format(time.RFC3339Nano)
		}
		f := where(t, text)
		var want []int64
		if err := pool.QueryRow(t.Context(), `
			SELECT ARRAY (SELECT id FROM river_job WHERE finalized_at BETWEEN $1 AND $2 ORDER BY id DESC LIMIT 120)`,
			since, until).Scan(&want); err != nil {
			t.Fatal(err)
		}
		var ids []int64
		for pages := 0; len(ids) < 120; pages++ {
			f.Limit = 40
			found, err := store.Search(t.Context(), f)
			if err != nil || pages > 10 {
				t.Fatalf("%q: %v after %d pages", text, err, pages)
			}
			for _, job := range found.Jobs {
				ids = append(ids, job.ID)
			}
			if f.BeforeID = found.Next; f.BeforeID == 0 {
				break
			}
		}
		if diff := cmp.Diff(want, ids, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}
