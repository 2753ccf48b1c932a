package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestPauseManyCrons(t *testing.T) {
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	crons := map[string]cronstore.Spec{}
	for _, name := range []string{"bill-1", "bill-2", "report"} {
		crons[name] = cronstore.Spec{Schedule: "@daily", Timezone: "UTC", Job: "j", CatchUp: "one"}
	}
	if _, err := cronstore.New(pool).Apply(t.Context(), cronstore.Applied{Hash: "h", NodeID: "n", Crons: crons}, false); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FORGE_DATABASE_URL", url)
	var operation string
	for _, step := range []struct {
		args string
		code int
		want string
	}{
		{"pause", exitUsage, "which crons?"},
		{"pause bill-1 --all", exitUsage, "by one of these alone"},
		{"pause bill-1 --dry-run", exitUsage, "go with --filter"},
		{"pause --filter crn:x", exitUsage, `want "cron"`},
		{"pause --filter cron:bill-*", exitUsage, "use --yes"},
		{"pause --filter cron:bill-* --dry-run", exitOK, "would pause 2 crons"},
		{"pause --filter cron:bill-* --yes --reason move", exitOK, "paused 2 crons; undo it with forge cron undo "},
		{"pause bill-1", exitOK, ": move"},
		{"pause --all --yes", exitOK, "paused 1 cron;"},
		{"pause --all --yes", exitOK, "paused no cron"},
		{"undo OPERATION", exitOK, "resumed 2 crons; undo it with"},
		{"undo OPERATION", exitConflict, "nothing is left to undo"},
		{"resume bill-1 report nobody", exitNotFound, "no crons: [nobody]"},
		{"pause bill-1 bill-2 -o json", exitOK, `"changed": 2`},
	} {
		var out, said bytes.Buffer
		code := run(t.Context(), strings.Fields("cron "+strings.Replace(step.args, "OPERATION", operation, 1)), &out, &said)
		if code != step.code || !strings.Contains(out.String()+said.String(), step.want) {
			t.Errorf("cron %s: %d %s%s", step.args, code, &out, &said)
		}
		if id := regexp.MustCompile(`paused 2 crons; undo it with forge cron undo (\S+)`).FindStringSubmatch(out.String()); id != nil {
			operation = id[1]
		}
	}
	if c, err := cronstore.New(pool).Get(t.Context(), "report"); err != nil || c.Paused() {
		t.Errorf("report is paused: %t, %v", c.Paused(), err)
	}
}
