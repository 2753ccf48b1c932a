package config

import (
	"strings"
	"testing"
	"time"
)

func TestExpandRun(t *testing.T) {
	t.Parallel()
	run := RunValues{JobID: 42, Job: "backup", Attempt: 2, Term: 7, Node: "node-a", Tick: time.Date(2026, 3, 1, 0, 30, 5, 0, time.FixedZone("", 3600))}
	for text, want := range map[string]string{
		"plain $ {run} ${HOME} {{.Names}}": "plain $ {run} ${HOME} {{.Names}}",
		"${run:job}/${run:job_id}":         "backup/42",
		"${run:attempt}${run:term}":        "27",
		"on ${run:node}.":                  "on node-a.",
		"${run:tick}":                      "2026-02-28T23:30:05Z",
		"${run:tick:%Y-%m-%d %H:%M:%S}":    "2026-02-28 23:30:05",
		"${run:tick:%F %T %y %j %s 100%%}": "2026-02-28 23:30:05 26 059 1772321405 100%",
		"${run:tick+1d:%F}":                "2026-03-01",
		"${run:tick-1w}":                   "2026-02-21T23:30:05Z",
		"${run:tick:from %F:to}":           "from 2026-02-28:to",
	} {
		if got, err := ExpandRun(text, run, nil); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	if got, err := ExpandRun("x${run:tick}y", run, strings.ToLower); err != nil || got != "x2026-02-28t23:30:05zy" {
		t.Errorf("escaped: %q, %v", got, err)
	}
	run.Tick = time.Time{}
	if _, err := ExpandRun("a${run:tick:%F}", run, nil); err == nil || err.Error() != `there is no tick: no cron fired this job (got "${run:tick:%F}")` {
		t.Errorf("without a tick: %v", err)
	}
}
