package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// The command says who led at an instant, or that nobody did.
func TestLeaderHistoryAt(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	if _, err := pgtest.Connect(t, url).Exec(t.Context(), `
		INSERT INTO forge_leaders (role, term) VALUES ('scheduler', 2), ('log_compactor', 0);
		INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, ended_at, end_reason, gap) VALUES
			('scheduler', 1, 'a', 'a1', '2026-03-01 10:00Z', '2026-03-01 11:00Z', 'crashed', NULL),
			('scheduler', 2, 'b', 'b1', '2026-03-01 11:30Z', '2026-03-01 12:00Z', 'resigned', '30 min')`); err != nil {
		t.Fatal(err)
	}
	file := fileWith(t, "[database]\nurl = \""+url+"\"\n")
	for at, want := range map[string]string{
		"2026-03-01T10:30:00Z": "scheduler a 1 2026-03-01 10:00:00.000 UTC 2026-03-01 11:00:00.000 UTC crashed",
		"2026-03-01T11:10:00Z": "scheduler (none) - 2026-03-01 11:00:00.000 UTC 2026-03-01 11:30:00.000 UTC b, term 2",
		"2026-03-01T09:10:00Z": "scheduler (not recorded) - - 2026-03-01 10:00:00.000 UTC a, term 1",
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"leader", "history", "--at", at, "--role", "scheduler", "--config", file}, &out, &errs); code != exitOK {
			t.Fatalf("exit %d: %s", code, errs.String())
		}
		if got := strings.Join(strings.Fields(out.String()), " "); !strings.HasSuffix(got, want) {
			t.Errorf("at %s: %q, want %q at the end", at, got, want)
		}
	}
	for _, at := range []string{"noon", "2099-01-01T00:00:00Z"} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"leader", "history", "--at", at, "--config", file}, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), "want") {
			t.Errorf("at %s: exit %d, %s", at, code, errs.String())
		}
	}
}
