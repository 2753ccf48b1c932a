package access_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestAudit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	begin := func(e access.AuditEntry) int64 {
		t.Helper()
		id, err := access.NewAudit(pool).Begin(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	done := begin(access.AuditEntry{Actor: "ci", Source: "192.0.2.1", Action: "jobs.cancel", Object: "42"})
	if err := access.NewAudit(pool).End(t.Context(), done, access.Done, "200"); err != nil {
		t.Fatal(err)
	}
	begin(access.AuditEntry{Actor: "cli:ann", Source: "host", Action: "queue.pause", Object: "mail"})
	begin(access.AuditEntry{Actor: "ci", Source: "192.0.2.1", Action: "leaders.step-down", Object: "a\x00b\x1b[31m\u202e\xff\n" + strings.Repeat("x", 600), Outcome: access.Refused})
	list := func(f access.AuditFilter) []access.AuditEntry {
		t.Helper()
		f.Limit = max(f.Limit, 1)
		entries, err := access.NewAudit(pool).List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
	want := []access.AuditEntry{
		{ID: 3, Actor: "ci", Source: "192.0.2.1", Action: "leaders.step-down", Object: "a b [31m\uFFFD\uFFFD " + strings.Repeat("x", 485) + "…", Outcome: "refused"},
		{ID: 2, Actor: "cli:ann", Source: "host", Action: "queue.pause", Object: "mail", Outcome: "begun"},
		{ID: 1, Actor: "ci", Source: "192.0.2.1", Action: "jobs.cancel", Object: "42", Outcome: "done", Detail: "200"},
	}
	if diff := cmp.Diff(want, list(access.AuditFilter{Limit: 10}), cmpopts.IgnoreFields(access.AuditEntry{}, "At")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for f, id := range map[access.AuditFilter]int64{
		{}: 3, {BeforeID: 3}: 2, {Actor: "cli:ann"}: 2, {Action: "jobs.cancel"}: 1, {Outcome: "begun"}: 2, {Actor: "ci", BeforeID: 3}: 1, {Actor: "cli:ann", AfterID: 1}: 2, {Oldest: true}: 1, {AfterID: 1, Oldest: true}: 2,
	} {
		if got := list(f); got[0].ID != id {
			t.Errorf("%+v: entry %d, want %d", f, got[0].ID, id)
		}
	}
	if _, err := pool.Exec(t.Context(), `UPDATE forge_audit SET at = now() - interval '2 days' WHERE id = 1`); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		n, err := access.NewAudit(tx).Prune(t.Context(), time.Now().Add(-24*time.Hour), 10)
		if n != 1 {
			t.Errorf("pruned %d", n)
		}
		return err
	})
	if err != nil || len(list(access.AuditFilter{Limit: 10})) != 2 {
		t.Errorf("after pruning: %v", err)
	}
}
