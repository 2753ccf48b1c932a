package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/engine"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/test/parts"
)

// leftSQL counts what probes leave in a database.
const leftSQL = `
SELECT (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'forge\_probe\_%')
     + (SELECT count(*) FROM pg_class WHERE relname LIKE 'forge\_probe\_%')
     + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'forge\_probe\_%')
     + (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'forge-engine%')`

func probe(t *testing.T, options engine.Options) engine.Report {
	t.Helper()
	report, err := engine.Probe(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func of(t *testing.T, report engine.Report, name string) engine.Result {
	t.Helper()
	for _, result := range report.Results {
		if result.Probe == name {
			return result
		}
	}
	t.Fatalf("no probe %q in %+v", name, report)
	return engine.Result{}
}

// others fails for every probe that does not hold, except those with the names.
func others(t *testing.T, report engine.Report, except ...string) {
	t.Helper()
	for _, result := range report.Results {
		if result.Status != engine.Holds && !slices.Contains(except, result.Probe) {
			t.Errorf("%s: %s: %s", result.Probe, result.Status, result.Found)
		}
	}
}

// leavesNothing waits until the server has ended the sessions of the probes.
func leavesNothing(t *testing.T, target string) {
	t.Helper()
	pool := pgtest.Connect(t, target)
	for left := 1; left > 0; {
		if err := pool.QueryRow(t.Context(), leftSQL).Scan(&left); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPostgreSQLHoldsEverything(t *testing.T) {
	t.Parallel()
	target := pgtest.EmptyURL(t)
	report := probe(t, engine.Options{URL: target})
	others(t, report)
	if report.Election != engine.Advisory || report.Notifications != engine.Listen || report.Refused() {
		t.Errorf("%+v", report)
	}
	if !strings.Contains(report.Server, "PostgreSQL") {
		t.Errorf("server %q", report.Server)
	}
	leavesNothing(t, target)
}

func TestProbeFindsLockStub(t *testing.T) {
	t.Parallel()
	target := pgtest.EmptyURL(t)
	report := probe(t, engine.Options{URL: pgtest.StubURL(t, target, pgtest.GrantsEveryLock)})
	others(t, report, "session locks")
	if found := of(t, report, "session locks"); found.Status != engine.Missing || !strings.Contains(found.Found, "always says yes") {
		t.Errorf("%+v", found)
	}
	if report.Election != engine.Lease || report.Notifications != engine.Poll || !strings.Contains(report.Reason, "session locks") {
		t.Errorf("%+v", report)
	}
	leavesNothing(t, target)
}

func TestProbeFindsLostNotifications(t *testing.T) {
	t.Parallel()
	stub := pgtest.StubURL(t, pgtest.EmptyURL(t), pgtest.DropsNotifications)
	report := probe(t, engine.Options{URL: stub})
	others(t, report, "notifications")
	if found := of(t, report, "notifications"); found.Status != engine.Missing || report.Notifications != engine.Poll {
		t.Errorf("%+v", report)
	}
}

func TestProbeRefusesServerWithoutTriggers(t *testing.T) {
	t.Parallel()
	target := pgtest.EmptyURL(t)
	report := probe(t, engine.Options{URL: pgtest.StubURL(t, target, pgtest.RefusesTriggers)})
	others(t, report, "triggers")
	if found := of(t, report, "triggers"); found.Status != engine.Missing || !strings.Contains(found.Found, "42601") {
		t.Errorf("%+v", found)
	}
	if !report.Refused() || !strings.Contains(report.Reason, "triggers") {
		t.Errorf("%+v", report)
	}
	leavesNothing(t, target)
}

func TestProbeBehindPoolers(t *testing.T) {
	t.Parallel()
	target := pgtest.EmptyURL(t)
	session := probe(t, engine.Options{URL: pgtest.StartBouncer(t, target, "session").URL()})
	others(t, session)
	if session.Election != engine.Advisory || !strings.Contains(of(t, session, "session state").Found, "session mode") {
		t.Errorf("session mode: %+v", session)
	}
	pooler := pgtest.StartBouncer(t, target, "transaction").URL()
	shared := probe(t, engine.Options{URL: pooler})
	others(t, shared, "session state", "session locks", "silent sessions", "notifications")
	if of(t, shared, "session state").Status != engine.Missing || of(t, shared, "session locks").Status != engine.NotChecked {
		t.Errorf("transaction mode: %+v", shared)
	}
	if shared.Election != engine.Lease {
		t.Errorf("transaction mode: %+v", shared)
	}
	if mixed := probe(t, engine.Options{URL: pooler, LeaderURL: target}); mixed.Election != engine.Lease {
		t.Errorf("direct sessions beside a pooler in transaction mode: %+v", mixed)
	}
}

// A user who may not create a schema gets the probes in forge's schema, or none of them.
func TestProbeWithoutRightToCreateSchema(t *testing.T) {
	t.Parallel()
	target := pgtest.EmptyURL(t)
	admin := pgtest.Connect(t, target)
	login := fmt.Sprintf("probe_%d", time.Now().UnixNano())
	for _, sql := range []string{"CREATE ROLE " + login + " LOGIN PASSWORD 'probe'", "CREATE SCHEMA forge"} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_, _ = admin.Exec(context.Background(), "DROP OWNED BY "+login)
		_, _ = admin.Exec(context.Background(), "DROP ROLE "+login)
	})
	parsed, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	parsed.User = url.UserPassword(login, "probe")
	options := engine.Options{URL: parsed.String(), Schema: "forge"}
	report := probe(t, options)
	if found := of(t, report, "lease"); found.Status != engine.NotChecked || !strings.Contains(found.Found, "owner") || report.Election != engine.Advisory {
		t.Errorf("%+v", report)
	}
	if _, err := admin.Exec(t.Context(), "GRANT USAGE, CREATE ON SCHEMA forge TO "+login); err != nil {
		t.Fatal(err)
	}
	others(t, probe(t, options))
	leavesNothing(t, target)
}

func TestProbeDropsLeftovers(t *testing.T) {
	t.Parallel()
	target := pgtest.EmptyURL(t)
	old := fmt.Sprintf("forge_probe_%d_dead", time.Now().Add(-2*time.Hour).Unix())
	if _, err := pgtest.Connect(t, target).Exec(t.Context(), "CREATE SCHEMA "+old); err != nil {
		t.Fatal(err)
	}
	probe(t, engine.Options{URL: target})
	leavesNothing(t, target)
}

func TestProbeOfUnreachableServer(t *testing.T) {
	t.Parallel()
	if _, err := engine.Probe(t.Context(), engine.Options{URL: "postgres://127.0.0.1:1/none"}); !errors.Is(err, postgres.ErrUnreachable) {
		t.Errorf("%v", err)
	}
}

// refusedURLs returns addresses of the target's server that it refuses: one with an unknown user, one
// with an unknown database.
func refusedURLs(t *testing.T, target string) []string {
	t.Helper()
	user, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	database := *user
	user.User, database.Path = url.UserPassword("forge_nobody", "hunter2"), "/forge_none"
	return []string{user.String(), database.String()}
}

// A server that refuses the login of leader_url is not unfit.
func TestRefusedLoginOfLeaderURL(t *testing.T) {
	t.Parallel()
	target := pgtest.EmptyURL(t)
	for _, refused := range refusedURLs(t, target) {
		options := engine.Options{URL: target, LeaderURL: refused}
		if err := engine.CheckSessions(t.Context(), options); err != nil {
			t.Error(err)
		}
		err := engine.CheckLeaderURL(t.Context(), options)
		if !errors.Is(err, postgres.ErrUnreachable) || !strings.Contains(err.Error(), "; check the user, the password") ||
			!strings.Contains(err.Error(), "database.leader_url") || strings.Contains(err.Error(), "hunter2") {
			t.Error(err)
		}
		report, err := engine.Probe(t.Context(), options)
		if !errors.Is(err, postgres.ErrUnreachable) || !strings.Contains(err.Error(), "database.leader_url") {
			t.Errorf("%+v, %v", report, err)
		}
	}
}

func TestCheckLeaderURL(t *testing.T) {
	t.Parallel()
	target := pgtest.EmptyURL(t)
	for name, test := range map[string]struct {
		leaderURL string
		want      error
	}{
		"unset":              {"", nil},
		"another address":    {pgtest.Proxy(t, target).URL(), nil},
		"transaction pooler": {pgtest.StartBouncer(t, target, "transaction").URL(), nil},
		"another database":   {pgtest.EmptyURL(t), engine.ErrTwoDatabases},
		"unreachable":        {"postgres://127.0.0.1:1/none", nil},
	} {
		options := engine.Options{URL: target, LeaderURL: test.leaderURL, Timeout: time.Second}
		if err := engine.CheckLeaderURL(t.Context(), options); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A proxy that starts after the node may lead to another database all the same.
func TestCheckLeaderURLAwaitsAnswer(t *testing.T) {
	t.Parallel()
	link := pgtest.Proxy(t, pgtest.EmptyURL(t))
	link.Cut()
	defer time.AfterFunc(time.Second, link.Resume).Stop()
	options := engine.Options{URL: pgtest.EmptyURL(t), LeaderURL: link.URL()}
	if err := engine.CheckLeaderURL(t.Context(), options); !errors.Is(err, engine.ErrTwoDatabases) {
		t.Errorf("a late proxy: %v", err)
	}
}

// Locks that exclude nobody say nothing about the databases.
func TestCheckLeaderURLWithoutLocks(t *testing.T) {
	t.Parallel()
	options := engine.Options{
		URL:       pgtest.StubURL(t, pgtest.EmptyURL(t), pgtest.GrantsEveryLock),
		LeaderURL: pgtest.StubURL(t, pgtest.EmptyURL(t), pgtest.GrantsEveryLock), Timeout: time.Second,
	}
	if err := engine.CheckLeaderURL(t.Context(), options); err != nil {
		t.Error(err)
	}
}

// The replica is promoted a moment before the old primary is stopped.
func TestCheckLeaderURLDuringFailover(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	replica := primary.Replica()
	url, err := parts.MultiHost(primary.URL(), replica.URL())
	if err != nil {
		t.Fatal(err)
	}
	leaderURL, err := parts.MultiHost(replica.URL(), primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	replica.Promote()
	options := engine.Options{URL: url, LeaderURL: leaderURL, Timeout: 500 * time.Millisecond}
	if err := engine.CheckLeaderURL(t.Context(), options); !errors.Is(err, engine.ErrTwoDatabases) {
		t.Fatalf("two primaries: %v", err)
	}
	stopped := make(chan struct{})
	time.AfterFunc(time.Second, func() { defer close(stopped); primary.Stop(devcluster.StopImmediate) })
	options.Timeout = 0
	if err := engine.CheckLeaderURL(t.Context(), options); err != nil {
		t.Error(err)
	}
	<-stopped
}

// A server whose clock is set may end a session late. That is no missing feature.
func TestCheckSessionsWithAnotherClock(t *testing.T) {
	t.Parallel()
	server, clock := pgtest.ServerWithClock(t)
	if err := clock.Set(time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := engine.CheckSessions(t.Context(), engine.Options{URL: server.URL(), Timeout: time.Second}); err != nil {
		t.Error(err)
	}
}

// The first server of the address is a replica, which takes no LISTEN.
func TestCheckSessionsOfThePrimary(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	url, err := parts.MultiHost(primary.Replica().URL(), primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.CheckSessions(t.Context(), engine.Options{URL: url}); err != nil {
		t.Error(err)
	}
}

func TestCheckSessions(t *testing.T) {
	t.Parallel()
	target := pgtest.EmptyURL(t)
	locks := pgtest.StubURL(t, target, pgtest.GrantsEveryLock)
	for name, test := range map[string]struct {
		options engine.Options
		want    string // empty: fit
	}{
		"PostgreSQL":          {engine.Options{URL: target}, ""},
		"two addresses":       {engine.Options{URL: target, LeaderURL: pgtest.StubURL(t, target, 0)}, ""},
		"locks":               {engine.Options{URL: locks}, "always says yes"},
		"locks of leader_url": {engine.Options{URL: target, LeaderURL: locks}, "always says yes"},
		"notifications":       {engine.Options{URL: pgtest.StubURL(t, target, pgtest.DropsNotifications), Timeout: time.Second}, "did not arrive"},
		"silent sessions":     {engine.Options{URL: pgtest.StubURL(t, target, pgtest.KeepsSilentSessions), Timeout: time.Second}, "did not end"},
		"unreachable":         {engine.Options{URL: "postgres://127.0.0.1:1/none"}, ""},
		"session pooler":      {engine.Options{URL: pgtest.StartBouncer(t, target, "session").URL()}, ""},
		"transaction pooler":  {engine.Options{URL: pgtest.StartBouncer(t, target, "transaction").URL()}, ""},
	} {
		err := engine.CheckSessions(t.Context(), test.options)
		unfit, refused := errors.AsType[*engine.UnfitError](err)
		if refused != (test.want != "") || refused && !strings.Contains(unfit.Found, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
