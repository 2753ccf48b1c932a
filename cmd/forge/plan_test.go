package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// A plan and an applied file with very many changes list some of each sort and count the rest.
func TestManyChangesAreCounted(t *testing.T) {
	t.Parallel()
	var (
		diff config.SectionDiff
		runs []cronstore.RunChange
		pair []forge.Rename
	)
	for i := range 1150 {
		name := fmt.Sprintf("cron-%04d", i)
		diff.Added, diff.Removed = append(diff.Added, name), append(diff.Removed, name)
		diff.Changed = append(diff.Changed, config.ItemChange{Name: name})
		runs = append(runs, cronstore.RunChange{Cron: name, Appear: 1})
		pair = append(pair, forge.Rename{From: name, To: name})
	}
	var out, errs bytes.Buffer
	a := &app{out: &out, err: &errs, format: "table"}
	until := time.Now()
	if err := a.showPlan(forge.Plan{Changes: config.Diff{"crons": diff}, Renamed: pair, Runs: runs, Until: until, Uncompared: 7}); err != nil {
		t.Fatal(err)
	}
	if err := a.showOutcome(cronstore.Outcome{State: cronstore.StateApplied, Added: diff.Added}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  + and 1,050 more\n", "  ~ and 1,050 more changed\n", "  - and 1,050 more\n", "and 1,050 more renames\n", "  and 1,057 more crons\n",
		"added    and 1,050 more\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	if lines := strings.Count(out.String(), "\n"); lines > 1000 {
		t.Errorf("%d lines", lines)
	}
}
