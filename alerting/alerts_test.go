package alerting_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/leaderstore"
)

func TestNoLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, seed)
	c.see(leads(1))
	c.want(nil, nil)
	c.see(leads(0))
	c.see(leads(0))
	c.want([]string{"no_scheduler_leader pending"}, nil)
	c.see(leads(1)) // shorter than its for
	c.want(nil, nil)
	c.see(leads(0))
	c.see(leads(0))
	c.see(leads(0)) // 30 s after the first
	firing := []string{"no_scheduler_leader firing"}
	first := []string{"pagerduty firing, pending"}
	c.want(firing, first)
	c.see(leads(0))
	c.want(firing, first)
	c.exec(`UPDATE forge_notifications SET state = 'delivered', done_at = now()`)

	c.takeOver() // no second page for the same occurrence
	c.see(leads(0))
	c.want(firing, []string{"pagerduty firing, delivered"})

	c.takeOver() // and the end is not lost
	c.see(leads(1))
	c.want(nil, []string{"pagerduty firing, delivered", "pagerduty resolved, pending"})
	if diff := cmp.Diff([]string{"no_scheduler_leader resolved"}, c.history()); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

// TestForOutlivesLeader checks that the time for which a condition has held survives the
// leader that saw it begin.
func TestForOutlivesLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, seed)
	c.see(leads(0))
	c.takeOver()
	c.see(leads(0))
	c.want([]string{"no_scheduler_leader pending"}, nil)
	c.takeOver()
	c.see(leads(0))
	c.want([]string{"no_scheduler_leader firing"}, []string{"pagerduty firing, pending"})
}

// TestForToleratesJitter checks that a delay of the first evaluation does not extend the
// wait by an interval.
func TestForToleratesJitter(t *testing.T) {
	t.Parallel()
	c := newCluster(t, seed)
	c.at = c.at.Add(interval / 20)
	c.see(leads(0))
	c.at = c.at.Add(-interval / 20)
	c.see(leads(0))
	c.want([]string{"no_scheduler_leader pending"}, nil)
	c.see(leads(0)) // a moment less than 30 s after the first
	c.want([]string{"no_scheduler_leader firing"}, []string{"pagerduty firing, pending"})
}

func TestSuperseded(t *testing.T) {
	t.Parallel()
	c := newCluster(t, strings.Replace(seed, `for = "30s"`, "", 1))
	c.see(leads(0))
	c.see(leads(1))
	c.want(nil, []string{"pagerduty firing, superseded", "pagerduty resolved, pending"})
	// A message that is being sent arrives first.
	c.exec(`UPDATE forge_notifications SET sending = true WHERE state = 'pending'`)
	c.see(leads(0))
	c.want([]string{"no_scheduler_leader firing"}, []string{
		"pagerduty firing, superseded", "pagerduty resolved, pending", "pagerduty firing, pending",
	})
}

// TestRateAcrossFailover checks that rate() works as in Prometheus: per second, over five
// minutes of totals, even if a leader reads them from the database first.
func TestRateAcrossFailover(t *testing.T) {
	t.Parallel()
	c := newCluster(t, seed)
	begin := c.at
	total := 0.0
	for range 25 {
		c.see(leads(1), failovers("scheduler", total), failovers("log_compactor", 0))
		total += 80 // in 15 s: 5.3 each second
	}
	firing, told := []string{"frequent_failovers scheduler firing"}, []string{"slack:#ops firing, pending"}
	c.want(firing, told)

	for i := range 25 {
		at := begin.Add(time.Duration(i) * interval)
		c.exec(`INSERT INTO forge_metrics_cluster (metric, labels, at, value, term)
			VALUES ('forge_leader_failovers_total', '{"role": "scheduler"}', $1, $2, 1)`, at, 80*i)
	}
	c.takeOver() // one point alone has no rate: it would be resolved
	c.see(leads(1), failovers("scheduler", total), failovers("log_compactor", 0))
	c.want(firing, told)
	for range 21 {
		c.see(leads(1), failovers("scheduler", total))
	}
	c.want(nil, []string{"slack:#ops firing, superseded", "slack:#ops resolved, pending"})
}

// TestGrouped checks that the occurrences of one alert share one message, and that the
// message about a resolved one also names those still firing.
func TestGrouped(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[[alerts]]
name = "led"
condition = "forge_leader_failovers_total > 0"
notify = ["hook", "chat"]
labels = { team = "ops-{{ $labels.role }}" }
annotations = { summary = "{{ $labels.role }} has {{ $value }}", other = "{{ with query \"sum(forge_leader_failovers_total)\" }}{{ . | first | value }}{{ end }}" }
`)
	c.see(failovers("a", 1), failovers("b", 2), failovers("c", 0))
	c.exec(`UPDATE forge_notifications SET state = 'delivered', done_at = now()`)
	c.see(failovers("a", 1), failovers("c", 0))
	c.want([]string{"led a firing"}, []string{
		"hook firing firing, delivered", "chat firing firing, delivered", "hook firing resolved, pending", "chat firing resolved, pending",
	})
	messages, err := alerts.New(c.pool).Notifications(t.Context(), []filter.Pattern{{"led"}}, 0, 10)
	if err != nil || len(messages) != 4 || !messages[0].Facts.Ended || messages[3].Facts.Ended {
		t.Errorf("the second message alone is about an end: %+v, %v", messages, err)
	}
	occurrences, err := alerts.New(c.pool).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantLabels := map[string]string{"alertname": "led", "role": "a", "severity": "warning", "team": "ops-a"}
	if diff := cmp.Diff(wantLabels, occurrences[0].Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	wantTexts := map[string]string{
		"summary": "a has 1", "other": "1", "description": "forge_leader_failovers_total > 0 holds: its value is 1.",
	}
	if diff := cmp.Diff(wantTexts, occurrences[0].Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// TestValuesFollow checks that a continuing occurrence, and the next message about it, has
// the value and the texts of the last evaluation, and that their change alone sends no
// message.
func TestValuesFollow(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[[alerts]]
name = "led"
condition = "forge_leader_failovers_total > 0"
for = "30s"
notify = ["hook"]
annotations = { summary = "{{ $labels.role }} has {{ $value }}" }
`)
	only := func(value float64, summary string) {
		t.Helper()
		open, err := alerts.New(c.pool).Open(t.Context())
		if err != nil || len(open) != 1 || open[0].Value != value || open[0].Annotations["summary"] != summary {
			t.Errorf("open: %+v, %v; want the value %v", open, err, value)
		}
	}
	c.see(failovers("a", 1))
	c.see(failovers("a", 2))
	only(2, "a has 2")
	c.see(failovers("a", 3))
	c.want([]string{"led a firing"}, []string{"hook firing, pending"})
	c.exec(`UPDATE forge_notifications SET state = 'delivered', done_at = now()`)
	c.see(failovers("a", 4))
	c.takeOver()
	c.see(failovers("a", 5))
	only(5, "a has 5")
	c.see(failovers("a", 0))
	c.want(nil, []string{"hook firing, delivered", "hook resolved, pending"})
	told, err := alerts.New(c.pool).Notifications(t.Context(), nil, 0, 1)
	if err != nil || told[0].Facts.Alerts[0].Annotations["summary"] != "a has 5" {
		t.Errorf("told %+v, %v; want the last value", told, err)
	}
}

// TestKeepFiringFor checks that an alert keeps firing for keep_firing_for after its
// condition ceased, across leaders; that the time starts again when the condition held in
// between; and that a pending occurrence is not kept.
func TestKeepFiringFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t, strings.Replace(seed, `for = "30s"`, `for = "15s"
keep_firing_for = "30s"`, 1))
	kept := func(want time.Time) {
		t.Helper()
		open, err := alerts.New(c.pool).Open(t.Context())
		if err != nil || len(open) != 1 || !open[0].KeptSince.Equal(want) {
			t.Errorf("open: %+v, %v; want one kept since %v", open, err, want)
		}
	}
	c.see(leads(0))
	c.see(leads(1)) // pending
	c.want(nil, nil)
	c.see(leads(0))
	c.see(leads(0))
	firing := []string{"no_scheduler_leader firing"}
	c.exec(`UPDATE forge_notifications SET state = 'delivered', done_at = now()`)
	c.see(leads(1))
	c.see(leads(1))
	kept(c.at.Add(-2 * interval))
	c.see(leads(0))
	kept(time.Time{})
	since := c.at
	c.see(leads(1))
	c.takeOver()
	c.see(leads(1))
	kept(since)
	c.want(firing, []string{"pagerduty firing, delivered"})
	c.see(leads(1)) // 30 s after the first at which it did not hold
	c.want(nil, []string{"pagerduty firing, delivered", "pagerduty resolved, pending"})
}

// TestFirstEventCounts checks that a counter missing from the totals was 0, so that its
// first event is an increase.
func TestFirstEventCounts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[[alerts]]
name = "missed"
condition = "sum by (role) (increase(forge_leader_failovers_total[10m])) > 0"
`)
	c.see(leads(1))
	c.see(leads(1), failovers("a", 1))
	c.see(leads(1), failovers("a", 1))
	c.want([]string{"missed a firing"}, nil)
}

func TestHistogramQuantile(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[[alerts]]
name = "slow"
condition = "histogram_quantile(0.9, rate(forge_job_wait_seconds_bucket[5m])) > 2"
`)
	waits := func(slow float64) metrics.Sample {
		return metrics.Sample{Name: "forge_job_wait_seconds", Value: 10 + slow, Histogram: &metrics.Histogram{
			Buckets: map[string]float64{"0.1": 10, "5": slow},
		}}
	}
	c.see(waits(0))
	c.see(waits(0))
	c.want(nil, nil)
	c.see(waits(20))
	c.want([]string{"slow firing"}, nil)
}

func TestEditedAlerts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, strings.Replace(seed, `for = "30s"`, "", 1))
	c.see(leads(0))
	c.want([]string{"no_scheduler_leader firing"}, []string{"pagerduty firing, pending"})
	c.exec(`UPDATE forge_notifications SET state = 'delivered', done_at = now()`)
	c.apply("[[alerts]]\nname = \"other\"\ncondition = \"vector(1) / 0 > 0\"\n")
	c.see(leads(0)) // a removed alert is resolved, and its receivers are notified
	c.want([]string{"other firing"}, []string{"pagerduty firing, delivered", "pagerduty resolved, pending"})
	open, err := alerts.New(c.pool).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(open); err != nil {
		t.Errorf("an infinite value cannot be shown: %v", err)
	}
}

// TestCannotBeEvaluated checks that an alert that cannot be evaluated keeps its state,
// and that others are still evaluated.
func TestCannotBeEvaluated(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[[alerts]]
name = "twins"
condition = "forge_leader_is_leader * on (role) forge_node_slots > 0"
[[alerts]]
name = "sound"
condition = "forge_leader_is_leader > 0"
`)
	slots := func(node string) metrics.Sample {
		return metrics.Sample{Name: "forge_node_slots", Labels: map[string]string{"role": "scheduler", "node": node}, Value: 1}
	}
	c.see(leads(1), slots("a"))
	both := []string{"sound scheduler firing", "twins scheduler firing"}
	c.want(both, nil)
	c.see(leads(1), slots("a"), slots("b")) // many-to-one matching
	c.want(both, nil)
	c.see(leads(0))
	c.want(nil, nil)
}

func TestDeposed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, strings.Replace(seed, `for = "30s"`, "", 1))
	old := c.watch
	c.watch = nil
	c.takeOver()
	err := old.See(t.Context(), aggregator.Totals{At: c.at, Samples: []metrics.Sample{leads(0)}})
	if !errors.Is(err, leaderstore.ErrDeposed) {
		t.Errorf("See of an old term = %v, want ErrDeposed", err)
	}
	c.want(nil, nil)
}

// TestSignOfLife checks that deadman_url is requested once for each evaluation, and only
// then.
func TestSignOfLife(t *testing.T) {
	t.Parallel()
	c := newCluster(t, seed)
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/ping/secret" {
			asked++
		}
	}))
	defer server.Close()
	c.deadman = server.URL + "/ping/secret"
	c.takeOver()
	c.see(leads(1))
	c.see(leads(1))
	if asked != 2 {
		t.Errorf("%d signs of life after two evaluations", asked)
	}
	c.exec(`ALTER TABLE forge_config RENAME TO away`)
	if err := c.watch.See(t.Context(), aggregator.Totals{At: c.at}); err == nil {
		t.Error("an evaluation without a configuration is said to have worked")
	}
	c.exec(`ALTER TABLE away RENAME TO forge_config`)
	if asked != 2 {
		t.Error("a sign of life came without an evaluation")
	}
	server.Close()
	c.see(leads(1)) // a failed request has no effect
}
