package e2e

import (
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/test/chaos/checker"
	"github.com/forge-scheduler/forge/test/chaos/journal"
)

// Limits of the job pulse, which go on in its section.
const (
	oneOfATenant = `
limit_per_key = { key = "args.tenant", limit = 1 }
`
	oneInAWhile = `
rate_limit = { limit = 1, per = "15s", key = "args.tenant" }
`
	inTurns = `
queue = "mail"
[queues.mail]
max_workers = 1
fair_by = "args.tenant"
`
	// slowlyDead leaves a hung node its jobs for a while.
	slowlyDead = `
[cluster]
dead_threshold = "20s"
`
)

// limits returns what the checker demands of the jobs of tenants.
func (m mutant) limits() (perKey map[string]int, rates map[string]checker.Rate) {
	if m.keyLimit > 0 {
		perKey = map[string]int{"pulse": m.keyLimit}
	}
	if m.rate.Limit > 0 {
		rates = map[string]checker.Rate{"pulse": m.rate}
	}
	return perKey, rates
}

// enqueueOne enqueues a job of the tenant.
func (s *scene) enqueueOne() {
	s.t.Helper()
	if _, errs, code := s.forge("job", "enqueue", "pulse", "--args", `{"tenant": "acme"}`, "--config", s.config); code != 0 {
		s.t.Fatalf("forge job enqueue: %s", errs)
	}
}

// running counts the jobs of the tenant that run.
func (s *scene) running() int64 {
	return s.number(`SELECT count(*) FROM river_job WHERE args ? 'tenant' AND state = 'running'`)
}

// started counts the attempts of the tenant's jobs.
func (s *scene) started() int64 {
	return s.number(`SELECT count(*) FROM river_job WHERE args ? 'tenant' AND attempt > 0`)
}

// goesAstray reports whether the mutant does wrong in time. Forge itself has considered the
// tenant's jobs when a job of no tenant that comes after them has started.
func (s *scene) goesAstray(wrong func() bool) bool {
	s.t.Helper()
	if !s.mutated {
		if _, errs, code := s.forge("job", "enqueue", "pulse", "--priority", "4", "--config", s.config); code != 0 {
			s.t.Fatalf("forge job enqueue: %s", errs)
		}
		eventually(s.t, "the job that comes after them has started", func() bool {
			return s.number(`SELECT count(*) FROM river_job WHERE priority = 4 AND attempt > 0`) == 1
		})
		return wrong()
	}
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if wrong() {
			return true
		}
	}
	return false
}

// replaceLeader kills a leader and waits for the next term. The jobs run on.
func (s *scene) replaceLeader(term int64) {
	s.t.Helper()
	s.kill("a")
	s.leader(term)
}

// killWhileAtLimit kills the leader while a job of a tenant runs and another one waits.
func (s *scene) killWhileAtLimit() bool {
	s.enter("w", "FORGE_NODE_ROLES=worker")
	s.enter("a", "FORGE_NODE_ROLES=scheduler")
	_, term := s.leader(0)
	s.enter("b", "FORGE_NODE_ROLES=scheduler")
	s.enqueueOne()
	eventually(s.t, "a job runs", func() bool { return s.running() == 1 })
	s.replaceLeader(term)
	s.enqueueOne()
	return s.goesAstray(func() bool { return s.running() > 1 })
}

// hangAtLimit stops a node that runs a job of a tenant while another one waits.
func (s *scene) hangAtLimit() bool {
	s.enter("a", "FORGE_NODE_ROLES=worker")
	s.enter("s", "FORGE_NODE_ROLES=scheduler")
	s.leader(0)
	s.enqueueOne()
	eventually(s.t, "a job runs", func() bool { return s.running() == 1 })
	s.signal("a", syscall.SIGSTOP)
	s.enter("b", "FORGE_NODE_ROLES=worker")
	s.enqueueOne()
	astray := s.goesAstray(func() bool { return s.running() > 1 })
	s.signal("a", syscall.SIGCONT)
	return astray
}

// killAfterRate kills the leader after a start with which a rate is used up.
func (s *scene) killAfterRate() bool {
	s.enter("w", "FORGE_NODE_ROLES=worker")
	s.enter("a", "FORGE_NODE_ROLES=scheduler")
	_, term := s.leader(0)
	s.enter("b", "FORGE_NODE_ROLES=scheduler")
	s.enqueueOne()
	eventually(s.t, "a job has started", func() bool { return s.started() == 1 })
	s.replaceLeader(term)
	s.enqueueOne()
	return s.goesAstray(func() bool { return s.started() > 1 })
}

const backlogSQL = `
SELECT id FROM forge_enqueue_many((
    SELECT jsonb_agg(jsonb_build_object('kind', 'pulse', 'args', jsonb_build_object('tenant', CASE n WHEN $1::int THEN 'small' ELSE 'acme' END)))
    FROM generate_series(0, $1::int) AS n))`

// killDuringBacklog kills the leader while the backlog of a tenant is worked, and a job of
// another one waits behind it.
func (s *scene) killDuringBacklog() bool {
	s.enter("w", "FORGE_NODE_ROLES=worker")
	s.enter("a", "FORGE_NODE_ROLES=scheduler")
	_, term := s.leader(0)
	s.enter("b", "FORGE_NODE_ROLES=scheduler")
	eventually(s.t, "the queue has its index", func() bool {
		return s.number(`SELECT count(*) FROM pg_index WHERE indisvalid AND indexrelid::regclass::text ~ 'forge_fair_'`) == 1
	})
	const backlog = 15
	rows, _ := s.pool.Query(s.t.Context(), backlogSQL, backlog)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		s.t.Fatal(err)
	}
	turn := checker.Turn{Job: ids[backlog], Kind: "pulse", Key: "small", Seq: s.number(journal.LastSeqSQL), Most: 4}
	s.turns = append(s.turns, turn)
	eventually(s.t, "a job has started", func() bool { return s.started() >= 1 })
	s.replaceLeader(term)
	eventually(s.t, "the job of the other tenant has started", func() bool {
		return s.number(`SELECT count(*) FROM river_job WHERE id = $1 AND attempt > 0`, turn.Job) == 1
	})
	return s.started() > int64(turn.Most)+1
}
