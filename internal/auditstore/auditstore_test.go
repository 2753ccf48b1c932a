package auditstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/auditstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestAudit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	begin := func(e auditstore.Entry) int64 {
		t.Helper()
		id, err := auditstore.Begin(t.Context(), pool, e)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	done := begin(auditstore.Entry{Actor: "ci", Source: "192.0.2.1", Action: "jobs.cancel", Object: "42"})
	if err := auditstore.End(t.Context(), pool, done, auditstore.Done, "200"); err != nil {
		t.Fatal(err)
	}
	begin(auditstore.Entry{Actor: "cli:ann", Source: "host", Action: "queue.pause", Object: "mail"})
	begin(auditstore.Entry{Actor: "ci", Source: "192.0.2.1", Action: "leaders.step-down", Object: "a\x00b\x1b[31m\u202e\xff\n" + strings.Repeat("x", 600), Outcome: auditstore.Refused})
	list := func(f auditstore.Filter) []auditstore.Entry {
		t.Helper()
		f.Limit = max(f.Limit, 1)
		entries, err := auditstore.List(t.Context(), pool, f)
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
	want := []auditstore.Entry{
		{ID: 3, Actor: "ci", Source: "192.0.2.1", Action: "leaders.step-down", Object: "a b [31m\uFFFD\uFFFD " + strings.Repeat("x", 485) + "…", Outcome: "refused"},
		{ID: 2, Actor: "cli:ann", Source: "host", Action: "queue.pause", Object: "mail", Outcome: "begun"},
		{ID: 1, Actor: "ci", Source: "192.0.2.1", Action: "jobs.cancel", Object: "42", Outcome: "done", Detail: "200"},
	}
	if diff := cmp.Diff(want, list(auditstore.Filter{Limit: 10}), cmpopts.IgnoreFields(auditstore.Entry{}, "At")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for f, id := range map[auditstore.Filter]int64{
		{}: 3, {BeforeID: 3}: 2, {Actor: "cli:ann"}: 2, {Action: "jobs.cancel"}: 1, {Outcome: "begun"}: 2, {Actor: "ci", BeforeID: 3}: 1, {Actor: "cli:ann", AfterID: 1}: 2,
	} {
		if got := list(f); got[0].ID != id {
			t.Errorf("%+v: entry %d, want %d", f, got[0].ID, id)
		}
	}
	if _, err := pool.Exec(t.Context(), `UPDATE forge_audit SET at = now() - interval '2 days' WHERE id = 1`); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		n, err := auditstore.Prune(t.Context(), tx, time.Now().Add(-24*time.Hour), 10)
		if n != 1 {
			t.Errorf("pruned %d", n)
		}
		return err
	})
	if err != nil || len(list(auditstore.Filter{Limit: 10})) != 2 {
		t.Errorf("after pruning: %v", err)
	}
}
