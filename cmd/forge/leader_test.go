package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/incident"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// TestLeaderStatusShowsRates checks that the rates are in the wide table and in the document,
// and that the plain table does not read them.
func TestLeaderStatusShowsRates(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	_, err := pool.Exec(t.Context(), `
		INSERT INTO forge_leaders (role, node_id, incarnation, term, acquired_at, renewed_at, lease_until)
		VALUES ('scheduler', 'a', 'a1', 1, now(), now(), now() + interval '1 hour');
		INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, last)
		SELECT 60, 'forge_leader_renewals_total', jsonb_build_object('role', 'scheduler', 'result', result), now() - interval '5 minutes', 60, value, 0
		FROM (VALUES ('renewed', 1198), ('error', 2)) AS counts (result, value);
		INSERT INTO forge_metrics_nodes (node_id, incarnation, samples) VALUES ('a', 'a1', '{
			"began": "2026-03-01T12:00:00Z", "clock": "2026-03-01T13:00:00Z",
			"samples": [{"n": "forge_node_heartbeats_total", "l": {"node_id": "a", "result": "success"}, "v": 3600}]}')`)
	if err != nil {
		t.Fatal(err)
	}
	file := fileWith(t, "[database]\nurl = \""+url+"\"\n")
	for format, wants := range map[string][]string{
		"wide": {"RENEWALS", "HEARTBEATS", "99.8 % of 1,200 in the last hour", "100 % of 3,600 since 20"},
		"json": {`"succeeded": 1198,`, `"attempts": 1200,`, `"succeeded": 3600,`},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"leader", "status", "-o", format, "--config", file}, &out, &errs); code != exitOK {
			t.Fatalf("exit %d: %s", code, errs.String())
		}
		for _, want := range wants {
			if strings.Count(out.String(), want) != 1 {
				t.Errorf("-o %s has %q %d times, want it once:\n%s", format, want, strings.Count(out.String(), want), out.String())
			}
		}
	}
	if _, err := pool.Exec(t.Context(), `ALTER TABLE forge_metrics_rollups RENAME TO unreadable`); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"leader", "status", "--config", file}, &out, &errs); code != exitOK || strings.Contains(out.String(), "%") {
		t.Errorf("exit %d: %s%s", code, out.String(), errs.String())
	}
}

// TestIncidentOfQuietCluster checks what is said of a change of leader during which nothing was due.
func TestIncidentOfQuietCluster(t *testing.T) {
	t.Parallel()
	i := &incident.Incident{
		Old: &incident.OldLeader{NodeID: "a"}, EventsKept: true, Lost: incident.Lost{Nothing: true, Ticks: &cronstore.Unrecorded{Crons: 3}},
		Ticks: &cronstore.GapTicks{}, FirstTick: &cronstore.Tick{Cron: "hourly", LatenessMS: 12},
	}
	for _, property := range incidentProperties {
		want, tested := map[string]string{
			"lost": "nothing (no tick was due, no job is orphaned)", "delayed ticks": "none", "rescued jobs": "none",
			"first tick": "- of hourly, late by 12ms, recorded ",
		}[property.title]
		if got := property.show(i); tested && got != want {
			t.Errorf("%s: %q, want %q", property.title, got, want)
		}
	}
	i.Kind, i.Ticks = incident.NoLeader, nil
	if got := delayedTicks(i); got != "" {
		t.Errorf("delayed ticks without a leader, which records them: %q", got)
	}
}
