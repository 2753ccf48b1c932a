package leaderstore_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/leaderstore"
)

// campaign returns the term that a node won, or 0.
func (c *cluster) campaign(node string) int64 {
	c.t.Helper()
	return c.campaignFor("nightly", node)
}

func (c *cluster) campaignFor(role, node string) int64 {
	c.t.Helper()
	return value[int64](c, `SELECT coalesce(forge_role_campaign($1, $2, '1 minute'), 0)`, role, node)
}

func value[T any](c *cluster, sql string, args ...any) (v T) {
	c.t.Helper()
	if err := c.pool.QueryRow(c.t.Context(), sql, args...).Scan(&v); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (c *cluster) renew(term int64) bool {
	c.t.Helper()
	return value[bool](c, `SELECT forge_role_renew('nightly', $1)`, term)
}

func (c *cluster) stepDown(term int64) bool {
	c.t.Helper()
	return value[bool](c, `SELECT forge_role_step_down('nightly', $1)`, term)
}

func (c *cluster) leaderOf(role string) leaderstore.Leader {
	c.t.Helper()
	leaders, err := leaderstore.New(c.pool).Leaders(c.t.Context())
	i := slices.IndexFunc(leaders, func(l leaderstore.Leader) bool { return l.Role == role })
	if err != nil || i < 0 {
		c.t.Fatalf("leaders: %v, %v", leaders, err)
	}
	return leaders[i]
}

// expire ends the lease of the role by the database's clock.
func (c *cluster) expire() {
	c.t.Helper()
	c.exec(`UPDATE forge_leaders SET lease_until = clock_timestamp() WHERE role = 'nightly'`)
}

// write runs a fenced transaction like psql.
func (c *cluster) write(term int64) error {
	return pgx.BeginFunc(c.t.Context(), c.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(c.t.Context(), `SELECT forge_role_fence('nightly', $1)`, term); err != nil {
			return err
		}
		_, err := tx.Exec(c.t.Context(), `INSERT INTO written VALUES ($1)`, term)
		return err
	})
}

func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return fmt.Sprint(err)
}

// A program that only uses SQL wins a role, keeps it, loses it with its lease, and writes
// nothing after its term.
func TestSQLRoleLifecycle(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(`CREATE TABLE written (term bigint)`)
	if won := c.campaign("a"); won != 1 {
		t.Fatalf("a won term %d", won)
	}
	for _, other := range []string{"b", "a"} { // another process with the same id is a different candidate
		if won := c.campaign(other); won != 0 {
			t.Fatalf("%s won term %d of a role with a leader", other, won)
		}
	}
	if !c.renew(1) || c.renew(2) || c.renew(0) || c.stepDown(2) {
		t.Error("want the current term to be renewed, and no other")
	}
	if err := c.write(1); err != nil {
		t.Error(err)
	}
	renewed := c.leaderOf("nightly").RenewedAt
	c.expire()
	if c.renew(1) {
		t.Error("an expired lease was renewed")
	}
	if won := c.campaign("b"); won != 2 {
		t.Fatalf("b won term %d", won)
	}
	if err := c.write(1); sqlState(err) != "FG001" {
		t.Errorf("a write of the deposed term: %v", err)
	}
	if n := c.count(`SELECT count(*) FROM written`); n != 1 {
		t.Errorf("%d rows written, want the row of the first term", n)
	}
	if c.stepDown(1) || !c.stepDown(2) || c.stepDown(2) {
		t.Error("want one step-down of the current term")
	}
	if won := c.campaign("a"); won != 3 {
		t.Fatalf("a won term %d", won)
	}
	tenures, err := leaderstore.New(c.pool).History(t.Context(), "nightly", 10)
	if err != nil || len(tenures) != 3 {
		t.Fatal(tenures, err)
	}
	third, second, first := tenures[0], tenures[1], tenures[2]
	if first.EndReason != "lease_expired" || !first.EndedAt.Equal(renewed) || first.HasGap || second.EndReason != "stepped_down" || third.EndReason != "" {
		t.Errorf("history: %+v", tenures)
	}
	if gap := second.AcquiredAt.Sub(first.EndedAt); (second.Gap-gap).Abs() > time.Millisecond || gap <= 0 {
		t.Errorf("gap %v, want %v since the last renewal", second.Gap, gap)
	}
	if gap := third.AcquiredAt.Sub(second.EndedAt); (third.Gap - gap).Abs() > time.Millisecond {
		t.Errorf("gap %v, want %v", third.Gap, gap)
	}
	events := value[string](c, `SELECT string_agg(type || ' ' || node_id || ' ' || term || coalesce(' ' || (data ->> 'reason'), ''), ', ' ORDER BY id) FROM forge_events WHERE role = 'nightly'`)
	const want = "election_started a 1, leader_elected a 1, leader_lost a 1 lease_expired, election_started b 2, leader_elected b 2, " +
		"leader_lost b 2 stepped_down, election_started a 3, leader_elected a 3"
	if events != want {
		t.Errorf("events: %s", events)
	}
}

// The rows of a term are the same as those of a node with the lease strategy.
func TestSQLTermsAreRecordedLikeNodeTerms(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node, err := leaderstore.OpenLease(t.Context(), c.config("a"), []string{"billing"})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	acquired, err := node.AcquireTerm(t.Context(), "billing", leaderstore.SessionEnd{})
	if err != nil {
		t.Fatal(err)
	}
	c.campaign("a")
	if err := node.Resign(t.Context(), leaderstore.Lock{Role: "billing"}, acquired.Fence.Term, "stepped_down"); err != nil {
		t.Fatal(err)
	}
	c.stepDown(1)
	if _, err := node.AcquireTerm(t.Context(), "billing", leaderstore.SessionEnd{}); err != nil {
		t.Fatal(err)
	}
	c.campaign("a")
	const times = `regexp_replace(regexp_replace(to_jsonb(t)::text, '"\d{4}-\d\d-\d\dT[^"]*"', 'time', 'g'), '"\d\d:\d\d:[^"]*"', 'interval', 'g')`
	names := strings.NewReplacer("nightly", "billing", "sql:1", acquired.Fence.Incarnation, "sql:2", acquired.Fence.Incarnation, "http://a", "")
	for _, table := range []string{"forge_leaders", "forge_leader_history"} {
		of := func(role string) string {
			return names.Replace(value[string](c, `SELECT string_agg(`+times+`, E'\n' ORDER BY t.term) FROM `+table+` t WHERE role = '`+role+`'`))
		}
		if node, program := of("billing"), of("nightly"); node != program {
			t.Errorf("%s of a node:\n%s\nof a program:\n%s", table, node, program)
		}
	}
}

// However many sessions try at once, each term has one winner, and no write is out of
// order.
func TestConcurrentSQLCampaignsWinDistinctTerms(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.exec(`CREATE TABLE written (id bigserial, term bigint)`)
	const sessions, rounds = 8, 6
	var mu sync.Mutex
	winners := map[int64]string{}
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() {
			node := fmt.Sprintf("n%d", i)
			conn, err := pgx.Connect(t.Context(), c.url)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close(t.Context()) }()
			for won := 0; won < rounds && t.Context().Err() == nil; {
				var term int64
				if err := conn.QueryRow(t.Context(), `SELECT coalesce(forge_role_campaign('nightly', $1, '1 hour'), 0)`, node).Scan(&term); err != nil {
					t.Error(err)
					return
				}
				if term == 0 {
					continue
				}
				won++
				mu.Lock()
				if other, taken := winners[term]; taken {
					t.Errorf("term %d was won by %s and %s", term, other, node)
				}
				winners[term] = node
				mu.Unlock()
				if _, err := conn.Exec(t.Context(), fmt.Sprintf( // in one transaction, like psql -c
					`SELECT forge_role_fence('nightly', %[1]d); INSERT INTO written (term) VALUES (%[1]d); SELECT forge_role_step_down('nightly', %[1]d)`, term)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if n := c.count(`SELECT count(*) FROM written`); n != sessions*rounds || len(winners) != sessions*rounds {
		t.Errorf("%d rows, %d terms; want %d", n, len(winners), sessions*rounds)
	}
	for what, sql := range map[string]string{
		"writes out of order": `SELECT count(*) FROM (SELECT term, lag(term) OVER (ORDER BY id) AS before FROM written) w WHERE term <= before`,
		"terms that overlap or have a wrong gap": `SELECT count(*) FROM (SELECT acquired_at, gap, lag(ended_at) OVER (ORDER BY term) AS before
			FROM forge_leader_history WHERE role = 'nightly') h WHERE acquired_at < before OR abs(extract(epoch FROM gap - (acquired_at - before))) > 0.001`,
		"terms without an end": `SELECT count(*) FROM forge_leader_history WHERE role = 'nightly' AND ended_at IS NULL`,
	} {
		if n := c.count(sql); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
}

// No term begins while a fenced transaction of the previous one may still commit.
func TestSQLCampaignWaitsForFencedTransaction(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.campaign("a")
	tx, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT forge_role_fence('nightly', 1)`); err != nil {
		t.Fatal(err)
	}
	var bound string
	if err := tx.QueryRow(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&bound); err != nil || bound != "1min" {
		t.Errorf("an abandoned transaction lasts %s, %v", bound, err)
	}
	c.expire()
	if won := c.campaign("b"); won != 0 {
		t.Errorf("b won term %d during a fenced transaction", won)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if won := c.campaign("b"); won != 2 {
		t.Errorf("b won term %d after it", won)
	}
}

// A program receives an operator's request with its next renewal.
func TestSQLRoleIsHandedOverOnRequest(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.campaign("a")
	for _, step := range []struct {
		term           int64
		target         string
		refused, taker string
		reason         string
	}{
		{1, "c", "b", "c", "transferred"},
		{2, "", "c", "a", "stepped_down"},
	} {
		if err := leaderstore.New(c.pool).Request(t.Context(), "nightly", step.term, step.target); err != nil {
			t.Fatal(err)
		}
		if c.renew(step.term) || !c.stepDown(step.term) {
			t.Errorf("term %d: want a refused renewal and a step-down", step.term)
		}
		if won := c.campaign(step.refused); won != 0 {
			t.Errorf("%s won term %d, which is reserved for another", step.refused, won)
		}
		if won := c.campaign(step.taker); won != step.term+1 {
			t.Errorf("%s won term %d", step.taker, won)
		}
		if reason := value[string](c, `SELECT end_reason FROM forge_leader_history WHERE role = 'nightly' AND term = $1`, step.term); reason != step.reason {
			t.Errorf("term %d ended as %s; want %s", step.term, reason, step.reason)
		}
	}
}

// The functions cannot acquire, renew, fence or end the term of a node during its lease.
func TestSQLFunctionsCannotChangeNodeTerms(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.open("a")
	own := leaderstore.Lock{Role: "nightly", ID: 77}
	c.exec(`INSERT INTO forge_leaders (role) VALUES ('nightly')`)
	if !c.tryLock(s, own) {
		t.Fatal("a did not win the lock")
	}
	acquired, err := s.AcquireTerm(t.Context(), "nightly", leaderstore.SessionEnd{})
	if err != nil {
		t.Fatal(err)
	}
	term := acquired.Fence.Term
	if c.campaign("b") != 0 || c.renew(term) || c.stepDown(term) {
		t.Error("a program changed a node's term")
	}
	if _, err := c.pool.Exec(t.Context(), `SELECT forge_role_fence('nightly', $1)`, term); sqlState(err) != "FG001" {
		t.Errorf("a program blocks a node's role: %v", err)
	}
	c.expire()
	if won := c.campaign("b"); won != term+1 {
		t.Errorf("b won term %d", won)
	}
	if still, err := s.Renew(t.Context(), []leaderstore.Held{{Role: "nightly", Term: term}}); err != nil || len(still) != 0 {
		t.Errorf("the node renewed %v, %v", still, err)
	}
	if c.tryLock(c.open("c"), leaderstore.Lock{Role: "nightly", ID: 78}) {
		t.Error("a node won the lock of a role that a program leads")
	}
}

func TestSQLFunctionsRejectBadInput(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, args := range []string{
		`'scheduler', 'a'`, `'metrics_aggregator', 'a'`, `'log_compactor', 'a'`, `'worker', 'a'`,
		`NULL, 'a'`, `'', 'a'`, `'Nightly', 'a'`, `'a b', 'a'`, `E'a\n', 'a'`, `repeat('x', 64), 'a'`, `repeat('x', 1000000), 'a'`,
		`'nightly', NULL`, `'nightly', ''`, `'nightly', 'a b'`, `'nightly', repeat('x', 64)`, `'nightly', 'ä'`,
		`'nightly', 'a', NULL`, `'nightly', 'a', '0'`, `'nightly', 'a', '-1 s'`, `'nightly', 'a', '999 ms'`, `'nightly', 'a', '61 min'`,
	} {
		if _, err := c.pool.Exec(t.Context(), `SELECT forge_role_campaign(`+args+`)`); sqlState(err) != "22023" || len(err.Error()) > 300 {
			t.Errorf("forge_role_campaign(%.40s): %v", args, err)
		}
	}
	for _, call := range []string{`forge_role_renew(NULL, NULL)`, `forge_role_step_down(NULL, NULL)`} {
		if value[bool](c, `SELECT `+call) {
			t.Errorf("%s returned true", call)
		}
	}
	if _, err := c.pool.Exec(t.Context(), `SELECT forge_role_fence(NULL, NULL)`); sqlState(err) != "FG001" {
		t.Errorf("a fence without a term: %v", err)
	}
	c.exec(`INSERT INTO forge_leaders (role) SELECT 'r' || g FROM generate_series(1, 200) g ON CONFLICT DO NOTHING`)
	if _, err := c.pool.Exec(t.Context(), `SELECT forge_role_campaign('one_more', 'a')`); sqlState(err) != "54000" {
		t.Errorf("role 201: %v", err)
	}
	if won := c.campaignFor("r7", "a"); won != 1 {
		t.Errorf("a role that exists: term %d", won)
	}
}

// A database user needs only EXECUTE, and cannot make the functions use tables of its own.
func TestSQLFunctionsNeedOnlyExecute(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	login := "forge_test_" + strings.ToLower(rand.Text()[:12])
	c.exec(`CREATE ROLE ` + login)
	defer func() { c.exec(`DROP OWNED BY ` + login + `; DROP ROLE ` + login) }()
	conn, err := c.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	run := func(sql string) error {
		_, err := conn.Exec(t.Context(), sql)
		return err
	}
	const call = `SELECT forge_role_campaign('nightly', 'a')`
	if err := run(`SET ROLE ` + login); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{call, `SELECT forge_role_renew('nightly', 1)`, `SELECT forge_role_step_down('nightly', 1)`, `SELECT forge_role_fence('nightly', 1)`} {
		if err := run(sql); sqlState(err) != "42501" {
			t.Errorf("%s without a grant: %v", sql, err)
		}
	}
	c.exec(`GRANT EXECUTE ON FUNCTION forge_role_campaign, forge_role_renew, forge_role_step_down, forge_role_fence TO ` + login)
	if err := run(`CREATE TEMPORARY TABLE forge_leaders (role text, node_id text)`); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{call, `SELECT forge_role_renew('nightly', 1)`, `SELECT forge_role_fence('nightly', 1)`} {
		if err := run(sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if n := c.count(`SELECT count(*) FROM forge_leaders WHERE role = 'nightly' AND node_id = 'a' AND term = 1`); n != 1 {
		t.Errorf("%d rows of the role in forge's table", n)
	}
	if err := run(`RESET ROLE`); err != nil {
		t.Error(err)
	}
}
