package alerts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/alertstore"
	"github.com/forge-scheduler/forge/internal/config"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	known := []alerts.Series{
		{Name: "forge_leader_failovers_total", Type: "counter", Labels: []string{"role"}},
		{Name: "forge_job_wait_seconds", Type: "histogram", Labels: []string{"kind"}},
	}
	checkTexts(t)
	for condition, want := range map[string][]string{
		"sum(forge_leader_failovers_total{role='scheduler'}) == 0":           nil,
		"histogram_quantile(.9, forge_job_wait_seconds_bucket{le!='x'}) > 1": nil,
		"rate(forge_leader_failovers_total[5m]) > 5": {
			"a: warning: column 1: rate is per second: rate(forge_leader_failovers_total[5m]) > 5 means that many each second; " +
				"want increase(forge_leader_failovers_total[5m]) > 5, if it is meant over the whole range",
		},
		"rate(forge_leader_failovers_total[5m]) > 0.1": nil,
		"1 + forge_leader_failovers > 2": {
			"a: warning: column 5: the cluster has no metric forge_leader_failovers; want forge_leader_failovers_total",
		},
		"forge_leader_failovers_total{node_id='a'} > 2": {
			"a: warning: column 1: the cluster's forge_leader_failovers_total has no label node_id; want one of role",
		},
		"sum(forge_leader_failovers_total":       {"a: column 33: unclosed left parenthesis; want an expression of PromQL"},
		"forge_leader_failovers_total[5m]":       {"a: the condition is a range vector; want an instant vector: a comparison such as x > 5"},
		"sum(forge_leader_failovers_total) => 0": {`a: column 35: unexpected "="; want an expression of PromQL`},
	} {
		var got []string
		for _, p := range alerts.Check(alerts.Rule{Name: "a", Condition: condition}, known) {
			got = append(got, p.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", condition, diff)
		}
	}
}

func TestExport(t *testing.T) {
	t.Parallel()
	cfg, _, err := config.Parse("forge.toml", []byte(seed+`
[[alerts]]
name = "few"
condition = "sum(forge_node_slots) - sum(forge_job_running offset 1m) < 2"
labels = { team = "ops" }
`), config.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := alerts.Export(alertstore.Of(cfg))
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation)
	if len(errs) > 0 {
		t.Fatalf("Prometheus refuses the rules: %v\n%s", errs, text)
	}
	var got []string
	for _, rule := range groups.Groups[0].Rules {
		got = append(got, fmt.Sprintf("%s for %s %s: %s", rule.Alert, rule.For, rule.Labels["severity"], rule.Expr))
	}
	want := []string{
		`no_scheduler_leader for 30s critical: sum(forge_leader_is_leader{role='scheduler'}) == 0 or absent(forge_leader_is_leader{role="scheduler"})`,
		`frequent_failovers for 0s warning: rate(forge_leader_failovers_total[5m]) > 5`,
		`few for 0s warning: sum(forge_node_slots) - sum(forge_job_running offset 1m) < 2 or absent(forge_node_slots) or absent(forge_job_running)`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func checkTexts(t *testing.T) {
	t.Helper()
	problems := alerts.Check(alerts.Rule{
		Name: "a", Condition: "rate(up[2d]) > 0", Labels: map[string]string{"l": "{{ $labels.role }}"},
		Annotations: map[string]string{"summary": "{{ $labels.role"},
	}, []alerts.Series{{Name: "up"}})
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
	}
	want := []string{
		"a: warning: its ranges reach back 2d, and the cluster's totals are kept for 24h; want shorter ranges, or a longer retention.metrics",
		`a: annotations.summary: unclosed action; want a template of Prometheus`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// How far back an alert may look is what retention.metrics says.
func TestRangesWithinTheRetention(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Alerts = []config.Alert{{Name: "a", Condition: "rate(forge_leader_failovers_total[2d]) > 0"}}
	for keep, want := range map[time.Duration]int{47 * time.Hour: 1, 48 * time.Hour: 0} {
		cfg.Retention.Metrics = config.Duration(keep)
		if problems := alerts.CheckFile(cfg); len(problems) != want {
			t.Errorf("kept for %s: %v, want %d problems", keep, problems, want)
		}
	}
}
