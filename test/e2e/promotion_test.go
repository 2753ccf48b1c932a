package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
	"github.com/forge-scheduler/forge/test/parts"
)

// The primary dies with a leader on it, and its replica takes over: the nodes
// find it by the addresses of both, and no tick is lost or doubled.
func TestPromotionOfAReplica(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	replica := primary.Replica()
	url, err := parts.MultiHost(primary.URL(), replica.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := clusterOn(t, url, everySecond+unhurried)
	c.startAll("a", "b", "c")
	_, term := c.leader(0)
	c.awaitTicks(term)
	primary.Stop(devcluster.StopKill)
	writable := replica.Promote()
	_, next := c.leader(term)
	keepsPromise(t, "promotion, from taking writes", time.Since(writable))
	c.awaitTicks(next)
	c.demandTimelines(term, next)
	c.settle()
	c.demandEveryTickOnce("second")
}

// demandTimelines looks for what tells two primaries apart.
func (c *cluster) demandTimelines(before, after int64) {
	c.t.Helper()
	out, errs, code := c.forge("leader", "history", "--role", "scheduler", "-o", "json")
	if code != 0 {
		c.t.Fatalf("exit %d: %s", code, errs)
	}
	type tenure struct {
		Term     int64  `json:"term"`
		Timeline string `json:"timeline"`
	}
	timelines := map[int64]string{}
	for _, t := range decode[[]tenure](c.t, out) {
		timelines[t.Term] = t.Timeline
	}
	if timelines[before] != "00000001" || timelines[after] != "00000002" {
		c.t.Errorf("timelines by term: %v", timelines)
	}
	for _, args := range [][]string{{"leader", "status", "-o", "wide"}, {"leader", "history", "-o", "wide"}} {
		if out, errs, _ := c.forge(args...); !strings.Contains(out, "00000002") {
			c.t.Errorf("no timeline in %v:\n%s%s", args, out, errs)
		}
	}
}

// Elections need a server that takes writes. A candidate on a replica says what
// to do.
func TestCandidateOnAReplicaIsRefused(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	replica := primary.Replica()
	c := clusterOn(t, primary.URL(), everySecond)
	serve := []string{"serve", "--config", c.config, "--node-id", "a", "--listen", nodes.AnyPort}
	_, errs, code := forgeWith(t, []string{"FORGE_DATABASE_URL=" + replica.URL()}, serve...)
	if code != 5 || !strings.Contains(errs, "read-only") || !strings.Contains(errs, "name the primary, or every server") {
		t.Errorf("exit %d: %s", code, errs)
	}
	candidate := launch(t, []string{"FORGE_DATABASE_URL=" + c.url, "FORGE_DATABASE_LEADER_URL=" + replica.URL()}, serve...)
	eventually(t, "the candidate says what to do", func() bool {
		return strings.Contains(candidate.output.String(), "database.leader_url names only ")
	})
	if n := c.number(`SELECT count(*) FROM forge_leader_history`); n != 0 {
		t.Errorf("%d tenures without a session on the primary", n)
	}
}

// An address that names the replica first, without target_session_attrs or with one that accepts
// it, leads every session of a node to the primary.
func TestNodeUsesOnlyThePrimary(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	replica := primary.Replica()
	both, err := parts.MultiHost(replica.URL(), primary.URL())
	if err != nil {
		t.Fatal(err)
	}
	follower := pgtest.Connect(t, replica.URL())
	for _, attributes := range []string{"", "target_session_attrs=any", "target_session_attrs=prefer-standby"} {
		c := clusterOn(t, primary.URL(), everySecond)
		c.url = strings.TrimSuffix(strings.Replace(both, "target_session_attrs=read-write", attributes, 1), "&")
		if _, errs, code := c.forge("apply", "--config", c.config); code != 0 {
			t.Fatalf("forge apply: exit %d: %s", code, errs)
		}
		before := c.number(`SELECT coalesce(max(term), 0) FROM forge_leader_history WHERE role = 'scheduler'`)
		c.start("a")
		_, term := c.leader(before)
		c.awaitTicks(term)
		c.demandSessionsOn(follower, attributes)
		c.stop("a")
	}
}

// demandSessionsOn looks for the node's sessions, which are on the primary and not on the follower.
// A new connection asks the follower, which the address names first, whether it takes writes, and
// leaves it; a session that works there has asked something else.
func (c *cluster) demandSessionsOn(follower *pgxpool.Pool, attributes string) {
	c.t.Helper()
	const sessionsSQL = `SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'forge:%' AND query NOT IN ('', 'show transaction_read_only')`
	var strays int64
	if err := follower.QueryRow(c.t.Context(), sessionsSQL).Scan(&strays); err != nil {
		c.t.Fatal(err)
	}
	if here := c.number(sessionsSQL); here == 0 || strays != 0 {
		c.t.Errorf("with %q: %d sessions on the primary, %d on the replica", attributes, here, strays)
	}
}

// A replica is promoted while its primary lives on: both sides elect. The primary
// waits for its replica at each commit, in vain now, so that its side fires
// nothing any more; the timelines tell the terms of the two apart.
func TestTwoPrimariesUnderSynchronousReplication(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t)
	replica := primary.Replica()
	old := clusterOn(t, primary.URL(), everySecond+steady)
	old.startAll("a", "b")
	id, term := old.leader(0)
	old.awaitTicks(term)
	replica.Promote()
	fired := old.instant(`SELECT max(tick) FROM forge_cron_ticks`)

	promoted := clusterOn(t, replica.URL(), everySecond+steady)
	promoted.start("c")
	_, next := promoted.leader(term)
	promoted.awaitTicks(next)
	// The log shows it, not the history: no commit on the old primary is certain to end. The leader
	// may go on leading, because its renewals wait for no replica. Its second failure is that of a
	// retry, which must not leave another transaction.
	failed := regexp.MustCompile(fmt.Sprintf(`firing crons failed.* role=scheduler .*term=%d\b`, term))
	over := regexp.MustCompile(fmt.Sprintf(`(lost leadership|resigned) role=scheduler .*term=%d\b`, term))
	eventually(t, "the leader on the old primary fires nothing more", func() bool {
		log := old.nodes[id].output.String()
		return len(failed.FindAllString(log, 2)) == 2 || over.MatchString(log)
	})
	since := promoted.number(`SELECT count(*) FROM forge_cron_ticks`)
	eventually(t, "more ticks on the new primary", func() bool {
		return promoted.number(`SELECT count(*) FROM forge_cron_ticks`) > since+5
	})
	promoted.demandTimelines(term, next)
	promoted.settle()
	promoted.demandEveryTickOnce("second")
	// The transaction that was under way at the promotion is there, although no commit of it was
	// confirmed. It has several ticks if the leader was late. Each tick is due at a later time than
	// those before.
	if n := old.number(`SELECT count(DISTINCT xmin::text) FROM forge_cron_ticks WHERE tick > $1`, fired); n > 1 {
		t.Errorf("ticks of %d transactions fired on the old primary after the promotion", n)
	}
	if n := old.number(`SELECT count(*) FROM forge_cron_ticks WHERE tick > $1 AND term <> $2`, fired, term); n > 0 {
		t.Errorf("%d ticks fired on the old primary in later terms", n)
	}
	if n := old.number(`SELECT count(*) FROM forge_leader_history WHERE timeline <> '00000001'`); n != 0 {
		t.Errorf("%d terms of the old primary bear another timeline", n)
	}
}
