//go:build conformance

package chaos

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/engine"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/chaos/checker"
	"github.com/forge-scheduler/forge/test/nodes"
)

// The addresses that TestConformance takes: those of an empty database on the server to test, and
// database.leader_url if elections take another way.
const (
	conformanceURL       = "FORGE_CONFORMANCE_URL"
	conformanceLeaderURL = "FORGE_CONFORMANCE_LEADER_URL"
)

var throughFlag = flag.String("conformance.through", "stub",
	"without an address: the way to the tests' own PostgreSQL: direct, session or transaction (PgBouncer's mode), hosts or haproxy (three servers under Patroni), or stub, which grants every lock, for 8 s")

// stubRun is how long the run on the stub lasts.
const stubRun = 8 * time.Second

const tablesSQL = `SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') AND schemaname NOT LIKE 'pg\_toast%'`

// promises are what a run shows of a server, and the findings that refute each of them.
var promises = []struct {
	what     string
	refuting []checker.Kind
}{
	{"one leader for each term, and terms only rise", []checker.Kind{checker.TwoLeaders, checker.TermDown}},
	{"a deposed leader writes nothing", []checker.Kind{checker.StaleTerm}},
	{"each due tick is recorded once, with its job", []checker.Kind{checker.Lost, checker.Double, checker.Early, checker.Late, checker.Phantom}},
	{"policies decide as documented", []checker.Kind{checker.WrongVerdict, checker.Overlap}},
	{"an acknowledged job comes to its end, once", []checker.Kind{checker.AckedNotTerminal, checker.StaleAttempt, checker.WrongStart}},
	{"limits and rates by key hold", []checker.Kind{checker.OverLimit, checker.OverRate}},
	{"a backlog of one key does not delay another", []checker.Kind{checker.Unfair}},
}

// TestConformance shows what of forge holds on a server that speaks PostgreSQL's protocol: it
// probes the server, migrates a database, and breaks three nodes of a cluster on it. Nothing is
// done to the server itself.
func TestConformance(t *testing.T) {
	t.Parallel()
	url, lasts := os.Getenv(conformanceURL), *forFlag
	if url == "" {
		url = ownServer(t, *throughFlag)
		if *throughFlag == "stub" {
			lasts = stubRun
		}
	}
	r := prepareAt(t, url, pgtest.ConnectBy(t, url, pgx.QueryExecModeCacheDescribe))
	r.seed = cmp.Or(*seedFlag, uint64(time.Now().UnixNano())%1_000_000) //nolint:gosec // not negative
	r.blind = true
	r.demandEmpty()
	report := r.probe(os.Getenv(conformanceLeaderURL))
	r.Log(results(report))
	if report.Refused() {
		r.Fatal(report.Reason)
	}
	r.polls = report.Election == engine.Lease
	r.env = append(r.env, "FORGE_CLUSTER_LEADER_ELECTION_STRATEGY="+report.Election)
	if out, err := r.command(r.Context(), "migrate", "up").CombinedOutput(); err != nil {
		r.Fatalf("the migrations: %v\n%s", err, out)
	}
	if !r.linkable() {
		r.direct = func(string) string { return url }
	}
	r.begin(lasts, outage)
	r.rage()
	r.endCalmly()
	h, found := r.judge()
	r.demandEnough(lasts, h)
	r.Log(verdicts(found))
	r.Logf("%s: %s", report.Server, report.Reason)
	r.Logf("use cluster.leader_election.strategy = %q; notifications: %s", report.Election, report.Notifications)
}

// ownServer is an address of the tests' own PostgreSQL, with an empty database.
func ownServer(t *testing.T, through string) string {
	t.Helper()
	switch through {
	case "direct":
		return pgtest.EmptyURL(t)
	case "hosts", "haproxy":
		return ownPatroni(t, through)
	case "session", "transaction":
		bouncer := pgtest.StartBouncer(t, pgtest.EmptyURL(t), through)
		bouncer.Keep(t)
		return bouncer.URL()
	case "stub":
		return pgtest.StubURL(t, pgtest.EmptyURL(t), pgtest.GrantsEveryLock)
	}
	t.Fatalf("no way %q to PostgreSQL: want direct, session, transaction, hosts, haproxy or stub", through)
	return ""
}

// ownPatroni is an address of three servers under Patroni, once all of them run.
func ownPatroni(t *testing.T, through string) string {
	t.Helper()
	patroni := startPatroni(t, nodes.OpenDir(t), strings.NewReplacer())
	nodes.Eventually(t, waitTimeout, "every server runs", func() bool {
		state, err := patroni.State(t.Context())
		return err == nil && state.Whole(true)
	})
	if through == "haproxy" {
		return patroni.Through()
	}
	return patroni.Hosts()
}

// demandEmpty refuses a database that holds tables: the run would fill it.
func (r *run) demandEmpty() {
	r.Helper()
	var tables int
	if err := r.pool.QueryRow(r.Context(), tablesSQL).Scan(&tables); err != nil {
		r.Fatal(err)
	}
	if tables > 0 {
		r.Fatalf("the database has %d tables; the run needs an empty one, which it fills: CREATE DATABASE forge_conformance", tables)
	}
}

// probe tests the server's features.
func (r *run) probe(leaderURL string) engine.Report {
	r.Helper()
	if leaderURL != "" {
		r.env = append(r.env, "FORGE_DATABASE_LEADER_URL="+leaderURL)
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitTimeout)
	defer cancel()
	report, err := engine.Probe(ctx, engine.Options{URL: r.url, LeaderURL: leaderURL, Schema: "public"})
	if err != nil {
		r.Fatal(err)
	}
	return report
}

// linkable reports whether a proxy may stand before the server: it has one address and no TLS,
// which would name another host.
func (r *run) linkable() bool {
	r.Helper()
	config, err := pgx.ParseConfig(r.url)
	if err != nil {
		r.Fatal(err)
	}
	return config.TLSConfig == nil && len(config.Fallbacks) == 0
}

// results is a table of the probes.
func results(report engine.Report) string {
	return aligned(func(w *tabwriter.Writer) {
		for _, result := range report.Results {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", result.Probe, result.Status, result.Found)
		}
	})
}

// verdicts is a table of the promises.
func verdicts(found []checker.Finding) string {
	byKind := map[checker.Kind]int{}
	for _, f := range found {
		byKind[f.Kind]++
	}
	return aligned(func(w *tabwriter.Writer) {
		for _, promise := range promises {
			broken := 0
			for _, kind := range promise.refuting {
				broken += byKind[kind]
			}
			status := "holds"
			if broken > 0 {
				status = fmt.Sprintf("broken %d times", broken)
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\n", promise.what, status)
		}
	})
}

// aligned is what write writes, in columns.
func aligned(write func(w *tabwriter.Writer)) string {
	text := &strings.Builder{}
	text.WriteString("\n")
	w := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	write(w)
	_ = w.Flush() // a builder takes everything
	return text.String()
}
