package alerting_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/alerting"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/netguard"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// seed has forge's alerts in their first form, which must keep working.
const seed = `
[[alerts]]
name = "no_scheduler_leader"
condition = "sum(forge_leader_is_leader{role='scheduler'}) == 0"
for = "30s"
severity = "critical"
notify = ["pagerduty"]

[[alerts]]
name = "frequent_failovers"
condition = "rate(forge_leader_failovers_total[5m]) > 5"
severity = "warning"
notify = ["slack:#ops"]
`

// interval is metrics.scrape_interval.
const interval = 15 * time.Second

// cluster is a database with a leader that receives totals from the test.
type cluster struct {
	t     *testing.T
	pool  *pgxpool.Pool
	at    time.Time // of the next totals
	term  int64
	watch aggregator.Watch
	// deadman is metrics.deadman_url.
	deadman string
}

func newCluster(t *testing.T, file string) *cluster {
	t.Helper()
	c := &cluster{t: t, pool: pgtest.Pool(t), at: time.Now().Truncate(time.Second).Add(-time.Hour)}
	c.apply(file)
	c.takeOver()
	return c
}

func (c *cluster) exec(sql string, args ...any) {
	c.t.Helper()
	if _, err := c.pool.Exec(context.Background(), sql, args...); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

// apply makes a file's alerts the ones in force.
func (c *cluster) apply(file string) {
	c.t.Helper()
	cfg, _, err := config.Parse("forge.toml", []byte(file), config.LoadOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	body, hash, err := cfg.ClusterSections()
	if err != nil {
		c.t.Fatal(err)
	}
	c.exec(`INSERT INTO forge_config (hash, applied_by, body) VALUES ($1, 'a', $2)`, hash, body)
}

// takeOver makes another node the leader.
func (c *cluster) takeOver() {
	c.t.Helper()
	c.term++
	c.exec(`INSERT INTO forge_leaders (role, incarnation, term) VALUES ('metrics_aggregator', '00000000000000ff', $1)
		ON CONFLICT (role) DO UPDATE SET term = excluded.term`, c.term)
	if c.watch != nil {
		c.watch.Close()
	}
	c.watch = c.newWatch(c.term)
	c.t.Cleanup(c.watch.Close)
}

func (c *cluster) newWatch(term int64) aggregator.Watch {
	return alerting.New().NewWatch(alerts.WatchOptions{
		Pool: c.pool, Interval: interval, Logger: slog.New(slog.NewTextHandler(c.t.Output(), nil)),
		InForce: func(ctx context.Context, unless string) (cronstore.Config, error) {
			return cronstore.New(c.pool).SettingsUnless(ctx, unless)
		},
		DeadmanURL: func() string { return c.deadman }, Deadman: netguard.Guard{AllowPrivate: true}.Client(),
	}, fenceOf(term))
}

func fenceOf(term int64) leaderstore.Fence {
	return leaderstore.Fence{Role: "metrics_aggregator", Term: term, NodeID: "leader", Incarnation: "00000000000000ff"}
}

func leads(value float64) metrics.Sample {
	return metrics.Sample{Name: metrics.LeaderIsLeaderName, Labels: map[string]string{"role": "scheduler"}, Value: value}
}

func failovers(role string, total float64) metrics.Sample {
	return metrics.Sample{Name: metrics.LeaderFailoversName, Labels: map[string]string{"role": role}, Value: total}
}

// see passes the leader the totals of the next interval.
func (c *cluster) see(totals ...metrics.Sample) {
	c.t.Helper()
	if err := c.watch.See(c.t.Context(), aggregator.Totals{At: c.at, Samples: totals}); err != nil {
		c.t.Fatal(err)
	}
	c.at = c.at.Add(interval)
}

// open returns the open occurrences: name, labels and state.
func (c *cluster) open() []string {
	c.t.Helper()
	occurrences, err := alerts.New(c.pool).Open(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return words(occurrences)
}

func (c *cluster) history() []string {
	c.t.Helper()
	var occurrences []alerts.Occurrence // one by one
	for before := int64(0); ; {
		one, err := alerts.New(c.pool).History(c.t.Context(), nil, before, 1)
		if err != nil {
			c.t.Fatal(err)
		}
		if len(one) == 0 {
			break
		}
		occurrences, before = append(occurrences, one...), one[0].ID
	}
	return words(occurrences)
}

func words(occurrences []alerts.Occurrence) []string {
	var all []string
	for _, i := range occurrences {
		all = append(all, strings.Join(strings.Fields(i.Alert+" "+i.Labels["role"]+" "+string(i.State)), " "))
	}
	return all
}

// told returns the messages in their order: target, number of firing and of resolved
// occurrences, and state.
func (c *cluster) told() []string {
	c.t.Helper()
	messages, err := alerts.New(c.pool).Notifications(c.t.Context(), nil, 0, 100)
	if err != nil {
		c.t.Fatal(err)
	}
	var all []string
	for _, m := range messages {
		text := m.Target
		for _, i := range m.Facts.Alerts {
			if i.EndsAt.IsZero() {
				text += " firing"
			} else {
				text += " resolved"
			}
		}
		all = append([]string{text + ", " + string(m.State)}, all...)
	}
	return all
}

func (c *cluster) want(open, told []string) {
	c.t.Helper()
	if diff := cmp.Diff(open, c.open()); diff != "" {
		c.t.Errorf("open occurrences (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(told, c.told()); diff != "" {
		c.t.Errorf("messages (-want +got):\n%s", diff)
	}
}
