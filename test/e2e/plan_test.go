package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge"
)

const planned = `
[jobs.tidy]
kind = "shell"
command = ["true"]

[[crons]]
name = "nightly"
schedule = "30 2 * * *"
job = "tidy"

[[crons]]
name = "weekly"
schedule = "0 4 * * SUN"
command = ["date"]

[[crons]]
name = "steady"
schedule = "@hourly"
job = "tidy"
`

// A plan says what an edited file would change, that a rename is a removal and
// an addition, and which runs appear and vanish; it changes nothing.
func TestPlanShowsWhatAFileWouldChange(t *testing.T) {
	t.Parallel()
	c := newCluster(t, planned)
	c.must("migrate", "up")
	if said := c.must("plan", "--config", c.config); !strings.Contains(said, "No file is in force yet") || !strings.Contains(said, "+ nightly") {
		t.Error(said)
	}
	c.must("apply", "--config", c.config)
	if said := c.must("plan", "--config", c.config, "--exit-code"); said !=
		"This file is in force: nothing changes.\n\nNo run of the next 7 days appears or vanishes.\n" {
		t.Error(said)
	}
	edited := filepath.Join(t.TempDir(), "forge.toml")
	text := strings.NewReplacer(`"weekly"`, `"sundays"`, "@hourly", "30 */2 * * *", `["true"]`, `["sleep", "1"]`).Replace(planned)
	if err := os.WriteFile(edited, []byte(text+"[queues.reports]\nmax_workers = 2\nglobal_limit = 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.exec(`INSERT INTO river_job (kind, queue, args) SELECT 'report', 'reports', '{}' FROM generate_series(1, 5)`)
	said := c.must("plan", "--config", edited)
	for _, want := range []string{
		"This file is new: the first node that reads it applies it.",
		"crons: 1 to add, 1 to change, 1 to remove, 1 unchanged\n  + sundays\n  ~ steady\n      schedule: \"@hourly\" -> \"30 */2 * * *\"\n  - weekly\n",
		"jobs: 1 to add, 1 to change, 1 to remove, 0 unchanged\n  + sundays\n  ~ tidy\n      command: [\"true\"] -> [\"sleep\",\"1\"]\n  - weekly\n",
		"queues: 1 to add, 0 to change, 0 to remove, 1 unchanged\n  + reports\n",
		"weekly -> sundays is a rename, which removes one cron and adds another: weekly keeps its history, and sundays starts from now.",
		"\n\nqueue reports: global_limit = 3 would hold back 2 of the waiting jobs now\n",
		"runs of the next 7 days:\n  steady: 84 appear, 168 vanish\n    + ", "    + and 81 more\n    - ", "    - and 165 more\n",
		"  sundays: 1 appear, 0 vanish\n    + Sun ", "  weekly: 0 appear, 1 vanish\n    - Sun ",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	if said := c.refused(7, "plan", "--config", edited, "--exit-code"); !strings.Contains(said, "would change") {
		t.Error(said)
	}
	plan := decode[forge.Plan](t, c.must("plan", "--config", edited, "--days", "30", "-o", "json"))
	if plan.State != "applied" || len(plan.Runs) != 3 || plan.Runs[0].Appear != 360 || plan.Runs[0].Vanish != 720 ||
		len(plan.Renamed) != 1 || plan.Renamed[0] != (forge.Rename{From: "weekly", To: "sundays"}) ||
		plan.Changes["jobs"].Changed[0].Fields[0].Key != "command" {
		t.Errorf("%+v", plan)
	}
	c.must("plan", "--config", edited, "-o", "yaml")
	many := filepath.Join(t.TempDir(), "forge.toml")
	for i := range 103 { // of 100 it is counted what they hold back
		text += fmt.Sprintf("[queues.q%03d]\nmax_workers = 1\nglobal_limit = 1\n", i)
	}
	if err := os.WriteFile(many, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, want := c.must("plan", "--config", many), "\nFurther new or changed limits, for which nothing was counted: 3\n"; !strings.Contains(said, want) {
		t.Errorf("no %q in\n%s", want, said)
	}
	if n := c.number(`SELECT count(*) FROM forge_crons WHERE name = 'sundays'`) + c.number(`SELECT count(*) - 1 FROM forge_config`); n != 0 {
		t.Error("a plan changed the database")
	}
	if said := c.refused(2, "apply", "--config", edited); !strings.Contains(said, "would remove weekly") || !strings.Contains(said, "use --yes") {
		t.Error(said)
	}
	c.must("apply", "--config", edited, "--yes")
	if said := c.must("plan", "--config", c.config); !strings.Contains(said,
		"A newer file has superseded this one: nodes leave it alone, and forge apply puts it in force.") ||
		!strings.Contains(said, "sundays -> weekly is a rename") ||
		!strings.Contains(said, "\n\nqueue reports is removed while jobs wait in it (5): no node with this file takes them\n") {
		t.Error(said)
	}
	c.refused(2, "plan", "--config", edited, "--days", "0")
	if err := os.WriteFile(edited, []byte("[[crons]]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.refused(3, "plan", "--config", edited)
}
