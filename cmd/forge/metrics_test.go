package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// TestMetricsByKind checks the table, and that its JSON is the document of the API.
func TestMetricsByKind(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), `
		INSERT INTO forge_metrics_shares (step, dimension, at, key, attempts, failures, wait, took)
		SELECT 60, 'kind', date_trunc('minute', now()) - interval '5 minutes', key, attempts, failures, wait, NULL
		FROM (VALUES ('send', 7, 0, array_fill(1, ARRAY[17])), ('report', 3, 2, NULL), ('_other', 9, 1, NULL)) AS s (key, attempts, failures, wait)`)
	if err != nil {
		t.Fatal(err)
	}
	file := "[database]\nurl = \"" + pool.Config().ConnString() + "\"\n"
	code, out, errOut := forgeOf(t, file, "metrics", "--by", "kind", "--sort", "failures", "--no-headers")
	rows := strings.Split(strings.TrimSpace(out), "\n")
	want := []string{"report 3 2 - - - - - -", "send 7 0 375ms 5m0s 5m0s - - -", "_other 9 1 - - - - - -"}
	if code != 0 || len(rows) != len(want) {
		t.Fatalf("%d %s\n%s", code, out, errOut)
	}
	for i, row := range rows {
		if got := strings.Join(strings.Fields(row), " "); got != want[i] {
			t.Errorf("row %d is %q, want %q", i, got, want[i])
		}
	}
	_, out, _ = forgeOf(t, file, "metrics", "--by", "kind", "-n", "1", "-o", "json")
	var document aggregator.Breakdown
	if err := json.Unmarshal([]byte(out), &document); err != nil || document.By != "kind" || document.Step != "1m" || document.To.Sub(document.From) != time.Hour || len(document.Items) != 2 || document.Items[1].Attempts != 12 {
		t.Errorf("%+v, %v\n%s", document, err, out)
	}
	for args, want := range map[string]string{
		"--by tag":                  `--by: found "tag", want one of cron, kind, node, queue`,
		"":                          `--by: found ""`,
		"--by kind --sort p99":      `--sort: found "p99", want one of attempts, failures, wait, took, key`,
		"--by kind --since never":   `--since: found "never", want a duration such as 24h`,
		"--by kind -n 200":          `--limit: found 200, want 1 to 100`,
		"--by kind --from tomorrow": `--from "tomorrow": want RFC 3339`,
		"--by kind --from 2026-11-20T00:00:00Z --to 2026-11-19T00:00:00Z": "--from must be before --to",
	} {
		if code, _, errOut := forgeOf(t, file, append([]string{"metrics"}, strings.Fields(args)...)...); code != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("%q: %d %s, want %s", args, code, errOut, want)
		}
	}
}
