package alerting

import (
	"fmt"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// BenchmarkEvaluate100 runs one evaluation of a hundred alerts, as the leader of the
// metrics aggregator does at each interval: half of them read one gauge, half ten minutes
// of the counters of a hundred crons.
func BenchmarkEvaluate100(b *testing.B) {
	const interval = 15 * time.Second
	engine := newEngine(3 * interval)
	b.Cleanup(func() { _ = engine.Close() })
	h, at := newHistory(), time.Now().Truncate(time.Second)
	for back := 40; back >= 0; back-- {
		samples := []metrics.Sample{{Name: metrics.LeaderIsLeaderName, Labels: map[string]string{"role": "scheduler"}, Value: 1}}
		for i := range 100 {
			samples = append(samples, metrics.Sample{
				Name: "forge_cron_missed_total", Labels: map[string]string{"cron": fmt.Sprintf("c%d", i)}, Value: float64(100 - back),
			})
		}
		h.add(at.Add(-time.Duration(back)*interval), samples)
	}
	rules := make([]alerts.Rule, 100)
	for i := range rules {
		rules[i] = alerts.Rule{Name: fmt.Sprintf("a%d", i), Condition: "sum(forge_leader_is_leader{role='scheduler'}) == 0"}
		if i%2 == 1 {
			rules[i].Condition = "sum by (cron) (increase(forge_cron_missed_total[10m])) > 1000"
		}
	}
	for b.Loop() {
		for _, rule := range rules {
			if found, err := evaluate(b.Context(), engine, h, rule, at); err != nil || len(found) != 0 {
				b.Fatalf("%s holds for %d series: %v", rule.Condition, len(found), err)
			}
		}
	}
}
