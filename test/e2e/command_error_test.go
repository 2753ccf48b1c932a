package e2e

import (
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// The last line on stderr of a command is its error wherever one is shown, and dead letters
// whose lines differ in numbers are one group.
func TestErrorOfACommandIsItsLastLine(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[jobs.import]
kind = "shell"
command = ["sh", "-c", '''echo "reading"; echo "warning" >&2; printf '\033[31mcannot read page %s: <b>\033[0m\n' $FORGE_JOB_ID >&2; exit 3''']
retry = { max_attempts = 1 }

[[crons]]
name = "rare"
schedule = "@yearly"
job = "import"
`)
	c.start("a")
	first, second := c.enqueue("import"), c.enqueue("import")
	for _, id := range []string{first, second} {
		c.demand(1, "was discarded: cannot read page "+id+": <b> (exit status 3)", "job", "wait", id, "--timeout", "2m")
	}
	group := jobstore.Fingerprint("import", "cannot read page 1: <b> (exit status 3)")
	eventually(t, "both dead letters are in the group", func() bool {
		groups := decode[[]jobstore.DeadGroup](t, c.demand(0, "", "dead", "list", "-o", "json"))
		return len(groups) == 1 && groups[0].Group == group && groups[0].Jobs == 2
	})
	shown, escaped := "cannot read page "+first+": <b> (exit status 3)", "cannot read page "+first+": &lt;b&gt; (exit status 3)"
	c.demand(0, shown, "job", "list")
	c.demand(0, shown, "job", "show", first)
	c.demand(0, shown, "dead", "list", group)
	c.demand(0, "sh -c 'echo", "job", "show", first)
	address := c.nodes["a"].listen()
	for path, want := range map[string]string{
		"/api/v1/jobs/" + first: `cannot read page ` + first + `: \u003cb\u003e (exit status 3)`,
		"/jobs":                 escaped, "/jobs/" + first: escaped, "/dead/" + group: escaped, "/": "cannot read page",
		"/jobs/" + first + "?find=warn":       `<mark>warn</mark>`,
		"/api/v1/jobs/" + first + "/output":   "reading\n",
		"/crons/rare?at=2026-01-01T00:00:01Z": "is not due by the schedule",
	} {
		if code, body, _ := get(address, path); code != 200 || !strings.Contains(string(body), want) {
			t.Errorf("GET %s: %d lacks %q\n%.3000s", path, code, want, body)
		}
	}
	c.demand(0, "rare", "cron", "trigger", "rare")
	c.demand(0, "triggered", "cron", "history", "rare", "--from", "2026-01-01T00:00:00Z")
	if out := c.demand(0, "", "cron", "history", "rare", "--to", "2026-01-01T00:00:00Z"); strings.Contains(out, "triggered") {
		t.Errorf("before it was triggered: %s", out)
	}
	c.demand(2, "--from", "cron", "history", "rare", "--from", "soon")
}
