package cronstore_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// addCrons adds rows of crons that are not due.
func addCrons(t *testing.T, pool *pgxpool.Pool, names ...string) {
	t.Helper()
	exec(t, pool, `
		INSERT INTO forge_crons (name, spec, spec_hash, watermark)
		SELECT name, '{"schedule": "@yearly", "job": "tidy"}', 'h', now() FROM unnest($1::text[]) AS name`, names)
}

func TestFind(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	addCrons(t, pool, "nightly-billing", "billing", "billing.eu_west", "Billing", "rebilling", "a|b & 'c':*", "größe", "gone", "it's", `back\slash`)
	exec(t, pool, `UPDATE forge_crons SET paused_at = now() WHERE name = 'billing.eu_west'`)
	exec(t, pool, `UPDATE forge_crons SET removed_at = now() WHERE name = 'gone'`)
	for text, want := range map[string][]string{
		"billing":                            {"billing", "Billing", "billing.eu_west", "nightly-billing"},
		"Billing":                            {"Billing", "billing", "billing.eu_west", "nightly-billing"},
		"BILL night":                         {"nightly-billing"},
		"eu bil":                             {"billing.eu_west"},
		"west-eu":                            {"billing.eu_west"},
		"illing":                             nil,
		"gone":                               nil,
		"":                                   nil,
		"' | ! & ()":                         nil,
		"a|b & 'c':*":                        {"a|b & 'c':*"},
		"c":                                  {"a|b & 'c':*"},
		"it's":                               {"it's"},
		`back\slash`:                         {`back\slash`},
		`\`:                                  nil,
		"!billing":                           {"Billing", "billing", "billing.eu_west", "nightly-billing"},
		"billing:*<->x":                      nil,
		"größ":                               {"größe"},
		strings.Repeat("billing ", 1000):     {"Billing", "billing", "billing.eu_west", "nightly-billing"},
		strings.Repeat("x", 5000) + "\u2028": nil,
	} {
		found, err := cronstore.New(pool).Find(t.Context(), text, 10)
		if err != nil {
			t.Errorf("%.40q: %v", text, err)
			continue
		}
		var got []string
		for _, cron := range found {
			got = append(got, cron.Name)
			if cron.Job != "tidy" || cron.Paused != (cron.Name == "billing.eu_west") {
				t.Errorf("%+v", cron)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.40q (-want +got):\n%s", text, diff)
		}
	}
}

// A search uses an index, even if it matches all crons, and returns a bounded number.
func TestFindAmongManyUsesIndex(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `
		INSERT INTO forge_crons (name, spec, spec_hash, watermark)
		SELECT 'cron-' || i, '{"schedule": "@yearly", "job": "tidy"}', 'h', now() FROM generate_series(1, 20000) AS i`)
	found, err := cronstore.New(pool).Find(t.Context(), "cron", 8)
	if err != nil || len(found) != 8 {
		t.Fatalf("%d crons, %v", len(found), err)
	}
	for _, query := range []string{"'cron':*", "'c':*", "'12345':*"} {
		if plan := planOf(t, pool, query); !strings.Contains(plan, "forge_crons_words") {
			t.Errorf("the plan for %s:\n%s", query, plan)
		}
	}
	if found, err := cronstore.New(pool).Find(t.Context(), "cron-12345", 8); err != nil || len(found) != 1 || found[0].Name != "cron-12345" {
		t.Errorf("%+v, %v", found, err)
	}
}

// planOf returns how PostgreSQL finds crons.
func planOf(t *testing.T, pool *pgxpool.Pool, query string) (plan string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), cronstore.OnlyIndexesSQL); err != nil {
			return err
		}
		rows, _ := tx.Query(t.Context(), "EXPLAIN "+cronstore.FindSQL, query, 100) // CollectRows returns the error
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		plan = strings.Join(lines, "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
