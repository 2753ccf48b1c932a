package browser_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/test/nodes"
)

// addJobs adds dead letters of two errors, and a job that ran for most of the last hour.
func (n *node) addJobs(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), strings.TrimPrefix(n.database, "FORGE_DATABASE_URL="))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `
		INSERT INTO river_job (kind, queue, args, state, attempt, max_attempts, attempted_at, finalized_at, attempted_by, errors)
		SELECT CASE WHEN i = 121 THEN 'slow' ELSE 'perished' END, 'attic', '{}', CASE WHEN i = 121 THEN 'completed' ELSE 'discarded' END::river_job_state, 1, 1,
		       CASE WHEN i = 121 THEN now() - interval '50 minutes' ELSE now() - interval '61 s' END, now() - interval '1 minute', '{gone-00000000000000aa}',
		       CASE WHEN i < 121 THEN ARRAY[jsonb_build_object('error', CASE WHEN i <= 20 THEN 'connection refused' ELSE 'disk full' END)] END
		FROM generate_series(1, 121) AS i`); err != nil {
		t.Fatal(err)
	}
}

// The others stay dead.
func retryTwentyOfMany(k *task) {
	k.click(`nav a[href="/dead"]`)
	k.sees("[name=filter]")
	do(k.T, k.tab, chromedp.SendKeys(chromedp.CSS("[name=filter]"), `kind:perished error:refused`+"\r"))
	k.sees(`[name=filter][value="kind:perished error:refused"]`)
	k.click(`a[href^="/bulk/dead/retry?"]`)
	k.sees("#act-bulk button")
	if got := eval[string](k.T, k.tab, `document.querySelector("h1").textContent`); got != "Retry 20 dead letters?" {
		k.Errorf("it asks %q", got)
	}
	k.click("#act-bulk button")
	wantSaid(k.T, k.tab, "20 jobs are available again.")
	var left struct{ Items []struct{ Kind string } }
	if err := k.node.get("/api/v1/dead-letters?kind=perished&limit=1000", &left); err != nil || len(left.Items) != 100 {
		k.Errorf("%d are left, %v", len(left.Items), err)
	}
	k.node.post(k.T, "/api/v1/bulk/jobs/cancel", `{"kind": "perished", "state": "available"}`) // no node runs the kind
}

func slowestOfTheHour(k *task) {
	k.click(`nav a[href="/jobs"]`)
	k.click(`a[href="/jobs?filter=since%3A1h&sort=slowest"]`)
	k.sees(`th[aria-sort] a[title="Slowest first"]`)
	if got := eval[string](k.T, k.tab, `document.querySelector("tbody td[data-label=Kind]").title`); got != "slow" {
		k.Errorf("the slowest job is of the kind %q", got)
	}
}

// checkSelection retries selected dead letters, without scripts, and discards some with them:
// a list with selected rows waits, and shift selects those between two.
func checkSelection(t *testing.T, n *node) {
	t.Helper()
	plain := newPlainTab(t)
	for range 3 {
		n.enqueue(t, `{"kind": "fallen"}`)
	}
	var groups struct {
		Items []struct {
			Group string
			Jobs  int
		}
	}
	awaitDead := func(jobs int) {
		t.Helper()
		nodes.Eventually(t, waitTimeout, "dead letters", func() bool {
			return n.get("/api/v1/dead?kind=fallen", &groups) == nil && len(groups.Items) == 1 && groups.Items[0].Jobs == jobs
		})
	}
	awaitDead(3)
	path := "/dead/" + groups.Items[0].Group
	open(t, plain, n.url(path))
	do(t, plain, chromedp.Click(chromedp.CSS(`tbody tr:nth-child(2) [name=id]`)))
	press(t, plain, `[formaction="/bulk/dead/retry"]`)
	press(t, plain, "#act-bulk button")
	wantSaid(t, plain, "1 job is available again.")
	awaitDead(3) // it dies again

	tab := newTab(t)
	do(t, tab, chromedp.Navigate(n.url(path)), live())
	if got := eval[int](t, tab, `(() => {
		const boxes = document.querySelectorAll("tbody .pick input");
		boxes[0].click();
		boxes[2].dispatchEvent(new MouseEvent("click", {bubbles: true, shiftKey: true}));
		return document.querySelectorAll("tbody .pick :checked").length;
	})()`); got != 3 {
		t.Errorf("shift selects %d rows", got)
	}
	press(t, tab, `[formaction="/bulk/dead/discard"]`)
	press(t, tab, "#act-bulk button")
	wantSaid(t, tab, "3 dead letters discarded.")
}
