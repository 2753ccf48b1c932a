package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/compactor"
)

// aged are the newest ticks of a thousand crons that are no more, and 48 before each, with
// reasons that make their partition large enough to go as a whole.
const (
	agedCrons = 1000
	aged      = `
INSERT INTO forge_cron_ticks (cron, tick, verdict, reason, term, node_id, recorded_at)
SELECT 'aged-' || c, at, 'fired', repeat('.', 1600), 1, 'gone', at
FROM generate_series(1, 1000) c, generate_series(now() - interval '60 days', now() - interval '50 days', interval '5 hours') at`
	agedLeft = `SELECT count(*) FROM forge_cron_ticks WHERE cron LIKE 'aged-%'`
)

// The compactor's leader dies in the midst of dropping a partition of the ledger, and
// another hangs there. Nothing is gone until one is through, ticks go on, and then what
// has to stay is there once.
func TestStruckCompactorDropsAPartitionOnce(t *testing.T) {
	t.Parallel()
	program := failpointBinary(t)
	c := newCluster(t, steady)
	c.must("migrate", "up")
	all := c.age()
	const strike = "before-drop=kill@1"
	c.doom(program, "k", strike)
	c.awaitStrike("k", strike, 0)
	c.doom(program, "h", "before-drop=stop@1")
	eventually(t, "the leader hangs", func() bool { return stopped(c.nodes["h"].Process.Pid) })
	if n := c.number(agedLeft); n != all {
		t.Errorf("%d old ticks are left of %d while nobody is through", n, all)
	}
	c.exec(`INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id) VALUES ('meanwhile', now(), 'triggered', 0, '')`)
	c.start("s")
	eventually(t, "another drops the partition", func() bool { return c.number(agedLeft) == agedCrons })
	c.signal("h", syscall.SIGCONT)
	c.nodes["h"].AwaitReady(t, c.nodes["h"].output)
	c.stop("h")
	if n := c.number(`SELECT count(DISTINCT cron) FROM forge_cron_ticks WHERE cron LIKE 'aged-%' AND tick > now() - interval '51 days'`); n != agedCrons {
		t.Errorf("the newest tick of %d crons is left, want %d", n, agedCrons)
	}
	if n := c.number(agedLeft); n != agedCrons {
		t.Errorf("%d old ticks are left after a deposed leader went on, want %d", n, agedCrons)
	}
}

// age fills the first partition of the ledger, makes it end, and returns how many ticks
// it has.
func (c *cluster) age() int64 {
	c.t.Helper()
	c.exec(aged)
	layout, err := compactor.NewStore(c.pool).Layout(c.t.Context(), "forge_cron_ticks")
	if err != nil {
		c.t.Fatal(err)
	}
	err = pgx.BeginFunc(c.t.Context(), c.pool, func(tx pgx.Tx) error {
		cuts := []time.Time{time.Now().Add(-45 * 24 * time.Hour).Truncate(time.Hour)}
		return compactor.NewStore(tx).Cut(c.t.Context(), "forge_cron_ticks", layout[len(layout)-1], cuts, time.Minute)
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return c.number(agedLeft)
}
