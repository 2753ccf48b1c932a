package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// example returns the code block of a language in the chapter on the tick in
// docs/crons.md.
func example(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/crons.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, _ := strings.Cut(string(text), "## The tick is the idempotency key")
	block := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(chapter)
	if block == nil {
		t.Fatalf("docs/crons.md has no example in %q", language)
	}
	return block[1]
}

// TestTheTickIsTheIdempotencyKey runs the examples of the documentation, each
// twice: as if the node had died after the work and before it was recorded.
func TestTheTickIsTheIdempotencyKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shell := strings.NewReplacer("/var/reports", dir, "make-report", "sh -c 'echo made >> "+dir+"/made; echo report'").Replace(example(t, "sh"))
	if err := os.WriteFile(filepath.Join(dir, "report"), []byte(shell), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var requests []http.Header
	invoices := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests = append(requests, r.Header)
	}))
	t.Cleanup(invoices.Close)
	// Due once a day, and not while the test runs.
	tick := time.Now().UTC().Truncate(time.Hour).Add(-5 * time.Hour)
	schedule := fmt.Sprintf("0 %d * * *", tick.Hour())
	c := newCluster(t, fmt.Sprintf(`
[http]
allow_private_targets = true
[[crons]]
name = "nightly-report"
schedule = %[4]q
command = ["sh", %[1]q]
[[crons]]
name = "invoices"
schedule = %[4]q
url = "%[2]s/invoices"
[[crons]]
name = "totals"
schedule = %[4]q
sql = """%[3]s"""
`, filepath.Join(dir, "report"), invoices.URL, example(t, "sql"), schedule))
	c.exec(`CREATE TABLE orders (amount numeric, created_at timestamptz);
		CREATE TABLE daily_totals (cron text, tick timestamptz, total numeric, at timestamptz DEFAULT now(), PRIMARY KEY (cron, tick));
		INSERT INTO orders VALUES (3, '2026-01-01'), (4, '2026-01-02')`)
	c.start("a")
	at := tick.Format(time.RFC3339)
	for _, cron := range []string{"nightly-report", "invoices", "totals"} {
		if _, stderr, code := c.forge("cron", "trigger", cron, "--at", at); code != 0 {
			t.Fatalf("trigger %s: %s", cron, stderr)
		}
	}
	for attempt := range 2 {
		eventually(t, "every run has ended", func() bool {
			return c.number(`SELECT count(*) FROM river_job WHERE state = 'completed' AND attempt = $1`, attempt+1) == 3
		})
		if attempt == 0 {
			c.exec(`UPDATE river_job SET state = 'available', finalized_at = NULL`)
		}
	}
	if made, err := os.ReadFile(filepath.Join(dir, "made")); err != nil || string(made) != "made\n" {
		t.Errorf("the report was made as often as it ran: %q, %v", made, err)
	}
	if report, err := os.ReadFile(filepath.Join(dir, "nightly-report-"+at+".csv")); err != nil || string(report) != "report\n" {
		t.Errorf("the report: %q, %v", report, err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, header := range requests {
		if header.Get("Idempotency-Key") != "invoices@"+at || header.Get("Forge-Cron") != "invoices" || header.Get("Forge-Tick") != at {
			t.Errorf("the request had %v", header)
		}
	}
	if len(requests) != 2 {
		t.Errorf("%d requests, want 2", len(requests))
	}
	if n := c.number(`SELECT count(*) FROM daily_totals WHERE cron = 'totals' AND tick = $1::timestamptz AND total = 7`, at); n != 1 {
		t.Errorf("%d rows of totals", n)
	}
	if want := example(t, "http"); !strings.Contains(want, "Idempotency-Key: invoices@2026-11-20T01:30:00Z") {
		t.Errorf("the documentation shows another request:\n%s", want)
	}
}
