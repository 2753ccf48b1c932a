package cronstore_test

import (
	"testing"

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
}
