package cronstore_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// inALanguage makes the database compare names as English does, and checks that
// this differs from the order of their bytes.
func inALanguage(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var collation string
	err := pool.QueryRow(t.Context(), `
		SELECT quote_ident(collname) FROM pg_collation
		WHERE collname IN ('en-x-icu', 'en_US', 'en_US.utf8') AND collencoding IN (-1, pg_char_to_encoding('UTF8'))
		ORDER BY collprovider = 'i' DESC LIMIT 1`).Scan(&collation)
	if err != nil {
		t.Fatalf("the server knows no English: %v", err)
	}
	exec(t, pool, `ALTER TABLE forge_crons ALTER COLUMN name TYPE text COLLATE `+collation)
	var differs bool
	err = pool.QueryRow(t.Context(), `SELECT min(name) <> min(name COLLATE "C") FROM forge_crons`).Scan(&differs)
	if err != nil || !differs {
		t.Fatalf("%s orders names by their bytes, %v", collation, err)
	}
}

func namesOf(crons []cronstore.Cron) (names []string) {
	for _, c := range crons {
		names = append(names, c.Name)
	}
	return names
}

// All lists have the order of the names' bytes, in any order of the database.
func TestNamesAreOrderedByBytes(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	want := []string{"B", "a-b", "aB", "a_b", "ab", "a·b", "ä"}
	specs := map[string]cronstore.Spec{}
	for _, name := range want {
		specs[name] = spec("@hourly")
	}
	apply(t, pool, "h1", specs, false)
	inALanguage(t, pool)

	all, err := cronstore.New(pool).List(t.Context())
	if diff := cmp.Diff(want, namesOf(all)); err != nil || diff != "" {
		t.Errorf("the list (-want +got):\n%s%v", diff, err)
	}
	some, err := cronstore.New(pool).Some(t.Context(), want)
	if diff := cmp.Diff(want, namesOf(some)); err != nil || diff != "" {
		t.Errorf("some (-want +got):\n%s%v", diff, err)
	}
	outlined, err := cronstore.New(pool).Outline(t.Context(), nil)
	for i := range outlined {
		if err != nil || outlined[i].Name != want[i] {
			t.Errorf("outlined %+v, want %s at %d (%v)", outlined, want[i], i, err)
		}
	}
	var walked []string
	for page := []cronstore.Cron{{}}; len(page) > 0; walked = append(walked, namesOf(page)...) {
		page, err = cronstore.New(pool).Page(t.Context(), cronstore.Narrow{After: page[len(page)-1].Name, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, walked); diff != "" {
		t.Errorf("page by page (-want +got):\n%s", diff)
	}
}

func TestPageFiltersCrons(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	specs := map[string]cronstore.Spec{}
	for name, job := range map[string]string{"gone": "Dump", "held": "dump_all", "late": "Dump", "new": "mail", "off": "mail", "Dump_50%": "mail"} {
		s := spec("@hourly")
		s.Job, s.Paused = job, name == "held"
		specs[name] = s
	}
	apply(t, pool, "h1", specs, false)
	due := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	exec(t, pool, `UPDATE forge_crons SET
		next_tick = CASE name WHEN 'new' THEN NULL WHEN 'Dump_50%' THEN '2026-03-01 12:00Z'::timestamptz ELSE '2026-03-01 11:00Z' END,
		removed_at = CASE name WHEN 'gone' THEN now() END,
		paused_at = CASE name WHEN 'off' THEN now() END`)
	exec(t, pool, `INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id)
		SELECT 'late', '2026-03-01 08:00Z'::timestamptz + n * interval '1 hour', 'failed', n, 'n1' FROM generate_series(1, 2) AS n`)
	for name, test := range map[string]struct {
		narrow cronstore.Narrow
		want   []string
	}{
		"all":                     {cronstore.Narrow{Limit: 9}, []string{"Dump_50%", "held", "late", "new", "off"}},
		"as many as are wanted":   {cronstore.Narrow{Limit: 2}, []string{"Dump_50%", "held"}},
		"after a name":            {cronstore.Narrow{After: "late", Limit: 9}, []string{"new", "off"}},
		"after one that is gone":  {cronstore.Narrow{After: "gone", Limit: 1}, []string{"held"}},
		"of a job or a name":      {cronstore.Narrow{Text: "DUMP", Limit: 9}, []string{"Dump_50%", "held", "late"}},
		"over the space between":  {cronstore.Narrow{Text: "late d", Limit: 9}, []string{"late"}},
		"a text is no pattern":    {cronstore.Narrow{Text: "p_50%", Limit: 9}, []string{"Dump_50%"}},
		"a pattern is none":       {cronstore.Narrow{Text: "d%p", Limit: 9}, nil},
		"paused":                  {cronstore.Narrow{Paused: true, Limit: 9}, []string{"held", "off"}},
		"overdue":                 {cronstore.Narrow{DueBefore: due, Limit: 9}, []string{"late"}},
		"overdue by a moment":     {cronstore.Narrow{DueBefore: due.Add(time.Microsecond), Limit: 9}, []string{"Dump_50%", "late"}},
		"paused, of a job, after": {cronstore.Narrow{Text: "mail", Paused: true, After: "held", Limit: 9}, []string{"off"}},
	} {
		page, err := cronstore.New(pool).Page(t.Context(), test.narrow)
		if diff := cmp.Diff(test.want, namesOf(page)); err != nil || diff != "" {
			t.Errorf("%s (-want +got):\n%s%v", name, diff, err)
		}
	}
	page, err := cronstore.New(pool).Page(t.Context(), cronstore.Narrow{Text: "late", Limit: 1})
	whole, wrong := cronstore.New(pool).Some(t.Context(), []string{"late"})
	if diff := cmp.Diff(whole, page); err != nil || wrong != nil || diff != "" || page[0].Last == nil || page[0].Last.Term != 2 {
		t.Errorf("a cron of a page is not as it is alone (-alone +page):\n%s%v %v", diff, err, wrong)
	}
}
