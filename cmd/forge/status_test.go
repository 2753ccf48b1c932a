package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/alerting"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// startNode runs a node with a file until the test ends, and returns the file's path.
func startNode(t *testing.T, text string) (path string) {
	t.Helper()
	path = fileWith(t, text)
	cfg, _, err := config.Load(path, config.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := forge.New(cfg, forge.WithAlerts(alerting.New()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return path
}

// TestStatus checks what forge status says of a cluster that is well, of one with a failing cron, and of
// one without nodes.
func TestStatus(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	path := startNode(t, fmt.Sprintf("[database]\nurl = %q\n[node]\nid = \"n1\"\n[http]\nlisten = \"127.0.0.1:0\"\n"+
		"[jobs.broken]\nkind = \"shell\"\ncommand = [\"false\"]\nretry = { max_attempts = 1 }\n"+
		"[[crons]]\nname = \"breaks\"\nschedule = \"0 0 1 1 *\"\njob = \"broken\"\n"+
		"[[crons]]\nname = \"held\"\nschedule = \"@hourly\"\njob = \"broken\"\npaused = true\n", url))
	forge := func(line ...string) (code int, out, errs string) {
		var printed, failures bytes.Buffer
		code = run(t.Context(), append(line, "--config", path), &printed, &failures)
		return code, printed.String(), failures.String()
	}
	status := func(what string, done func(code int, s clusterStatus) bool) clusterStatus {
		t.Helper()
		for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(200 * time.Millisecond) {
			code, out, errs := forge("status", "-o", "json")
			var s clusterStatus
			if err := json.Unmarshal([]byte(out), &s); err != nil && out != "" {
				t.Fatalf("%v: %s", err, out)
			}
			if done(code, s) {
				return s
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: exit %d: %s%s", what, code, out, errs)
			}
		}
	}
	well := status("not healthy", func(code int, s clusterStatus) bool { return code == exitOK && s.Crons.Defined == 2 })
	if well.Status != "healthy" || len(well.Nodes) != 1 || len(well.Leaders) != 3 || well.Crons.Defined != 2 || well.Crons.Paused != 1 ||
		well.Crons.Next == nil || well.Crons.Next.Name != "breaks" || well.Database.Name == "" || well.Database.Bytes == 0 {
		t.Errorf("got %+v", well)
	}
	if code, _, errs := forge("cron", "trigger", "breaks"); code != exitOK {
		t.Fatal(errs)
	}
	failing := status("no failing cron", func(code int, s clusterStatus) bool { return len(s.Crons.Failing) > 0 })
	if failing.Status != "degraded" || failing.Problems[0] != "1 cron is failing" || failing.Crons.Failing[0] != "breaks" {
		t.Errorf("got %+v", failing)
	}
	code, out, errs := forge("status")
	for _, want := range []string{
		"2 defined, 1 paused, 1 failing: breaks\n", "next      breaks ", "PostgreSQL ", "none firing", "scheduler", "n1", "DISCARDED", "cluster   forge, degraded, ",
	} {
		if code != exitFailed || !strings.Contains(out, want) {
			t.Errorf("forge status does not say %q: exit %d\n%s%s", want, code, out, errs)
		}
	}
	if lines := strings.Count(out, "\n"); lines > 24 {
		t.Errorf("%d lines do not fit a screen:\n%s", lines, out)
	}
	if want := "forge: degraded: 1 cron is failing\n"; errs != want {
		t.Errorf("got %q, want %q", errs, want)
	}
}

func TestStatusOfAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	path := fileWith(t, fmt.Sprintf("[database]\nurl = %q\n", pgtest.URL(t)))
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"status", "--config", path, "-o", "yaml"}, &out, &errs); code != exitFailed {
		t.Errorf("exit %d: %s", code, errs.String())
	}
	for _, want := range []string{"status: degraded\n", "jobs: []\n", "nodes: []\n", "alerts: []\n", "problems:\n- no node is active\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	unreachable := fileWith(t, "[database]\nurl = \"postgres://127.0.0.1:1/none\"\n")
	if code := run(t.Context(), []string{"status", "--config", unreachable}, &out, &errs); code != exitDatabase {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}

// TestStatusJudgesVacantRoles checks that a role without a leader is a problem if an active node could
// lead it, even if the doctor saw a leader a moment later.
func TestStatusJudgesVacantRoles(t *testing.T) {
	t.Parallel()
	s := clusterStatus{
		Leaders: []leaderLine{{Leader: leaderstore.Leader{Role: "scheduler"}}, {Leader: leaderstore.Leader{Role: "nightly"}}},
		Nodes:   []nodeLine{{Node: nodestore.Node{NodeID: "n1", State: nodestore.Active, Roles: []string{"worker", "scheduler"}}}},
	}
	if s.judge(); s.Status != "degraded" || strings.Join(s.Problems, ";") != "nobody leads scheduler" {
		t.Errorf("got %s %q", s.Status, s.Problems)
	}
}

func TestJobsByQueue(t *testing.T) {
	t.Parallel()
	queues := byQueue([]jobstore.Count{{Queue: "a", State: "available", Jobs: 10_000, More: true}, {Queue: "a", State: "running", Jobs: 2}, {Queue: "b", State: "running", Jobs: 1}})
	var got []string
	for _, q := range queues {
		for _, column := range queueJobColumns() {
			got = append(got, column.show(q))
		}
	}
	const want = "a 10000+ - - - - - 2 - b - - - - - - 1 -"
	if strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
