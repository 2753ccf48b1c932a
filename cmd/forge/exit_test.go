package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestUnknownNamesAreCorrected(t *testing.T) {
	t.Parallel()
	file := fileWith(t, "[database]\nurl = \""+pgtest.URL(t)+"\"\n"+
		"[queues.mail]\nglobal_limit = 2\n[[crons]]\nname = \"pulse\"\nschedule = \"@daily\"\ncommand = [\"true\"]\n")
	forge := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		return run(t.Context(), append(args, "--config", file), &out, &errs), errs.String()
	}
	if code, said := forge("apply", "--yes"); code != exitOK {
		t.Fatalf("apply: exit %d: %s", code, said)
	}
	for want, line := range map[string]string{
		`no cron "puls" (did you mean pulse?); see forge cron list`:   "cron show puls",
		`no cron "pulsee" (did you mean pulse?); see forge cron list`: "cron pause pulsee",
		`no cron "something"; see forge cron list`:                    "cron trigger something",
		`no queue "mial" (did you mean mail?); see forge queue list`:  "queue pause mial",
		`no cron "Pulse" (did you mean pulse?); see forge cron list`:  "cron history Pulse",
		`no cron "pulze" (did you mean pulse?); see forge cron list`:  "cron why pulze 2026-11-20T01:30:00Z",
		`no valid token "deploy"; see forge token list`:               "token revoke deploy",
	} {
		if code, said := forge(strings.Fields(line)...); code != exitNotFound || said != "forge: "+want+"\n" {
			t.Errorf("%s: exit %d: %s", line, code, said)
		}
	}
}
