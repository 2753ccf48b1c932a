package alerting_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"

	"github.com/forge-scheduler/forge/alerting"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	perSecond := "rate is per second: rate(forge_leader_failovers_total[5m]) > 5 means that many each second; " +
		"want increase(forge_leader_failovers_total[5m]) > 5, if it is meant over the whole range"
	for condition, want := range map[string][]string{
		"sum(forge_leader_failovers_total{role='scheduler'}) == 0":           nil,
		"histogram_quantile(.9, forge_job_wait_seconds_bucket{le!='x'}) > 1": nil,
		"rate(forge_leader_failovers_total[5m]) > 5":                         {"at its character 1: " + perSecond},
		"sum by (role) ((rate(forge_leader_failovers_total[5m]))) > 5":       {"at its character 17: " + perSecond},
		"rate(forge_leader_failovers_total[5m]) > 0.1":                       nil,
		// The product of a rate and a number is not a rate.
		"rate(forge_leader_failovers_total[5m]) * 300 > 5":                                  nil,
		"histogram_quantile(.9, rate(forge_job_wait_seconds_bucket[5m])) > 2":               nil,
		"rate(forge_job_wait_seconds_sum[5m]) / rate(forge_job_wait_seconds_count[5m]) > 2": nil,
		"1 + forge_leader_failovers > 2": {
			"at its character 5: the cluster has no metric forge_leader_failovers; want forge_leader_failovers_total",
		},
		"forge_leader_failovers_total{node_id='a'} > 2": {
			"at its character 1: the cluster's forge_leader_failovers_total has no label node_id; want one of role",
		},
		"rate(forge_leader_failovers_total[2d]) > 0": {
			"its ranges reach back 2d, and the cluster's totals are kept for 24h; want shorter ranges, or a longer retention.metrics",
		},
	} {
		var got []string
		for _, p := range alerting.New().Judge(config.Alert{Name: "a", Condition: condition}, 24*time.Hour) {
			text, warned := strings.CutPrefix(p.String(), ": warning: condition: ")
			if !warned {
				t.Errorf("%s: %s is no warning", condition, p)
			}
			got = append(got, text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", condition, diff)
		}
	}
}

// TestPositions checks that the problems in a file name their positions.
func TestPositions(t *testing.T) {
	t.Parallel()
	const file = "[[alerts]]\nname = \"a\"\ncondition = \"sum(up\"\nlabels = { \"a-b\" = \"x\" }\n[[alerts]]\nname = \"b\"\ncondition = \"up[5m]\"\n"
	_, report, err := config.Parse("forge.toml", []byte(file), config.LoadOptions{JudgeAlert: alerting.New().Judge, Environ: func() []string { return nil }})
	if err == nil {
		t.Error("a file with conditions that cannot be parsed is accepted")
	}
	want := []string{
		`forge.toml:3:13: alerts[0].condition: at its character 7: unclosed left parenthesis (got "sum(up"); want an expression of PromQL`,
		`forge.toml:4:12: alerts[0].labels.a-b: not a label that an alert may set; want letters, digits and _, and not alertname`,
		`forge.toml:7:13: alerts[1].condition: a range vector (got "up[5m]"); want an instant vector: a comparison such as x > 5`,
	}
	var got []string
	for _, problem := range report.Problems {
		got = append(got, problem.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestJudgeTexts(t *testing.T) {
	t.Parallel()
	got := alerting.New().Judge(config.Alert{
		Labels:      map[string]string{"l": "{{ $labels.role"},
		Annotations: map[string]string{"good": `{{ $value | humanize }} {{ with query "up" }}{{ . | first | value }}{{ end }}`, "bad": "{{ broken }}"},
	}, time.Hour)
	want := []config.Problem{
		{Key: "labels.l", Message: "unclosed action", Want: "a template of Prometheus"},
		{Key: "annotations.bad", Message: `function "broken" not defined`, Want: "a template of Prometheus"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestExport(t *testing.T) {
	t.Parallel()
	cfg, _, err := config.Parse("forge.toml", []byte(seed+`
[[alerts]]
name = "few"
condition = "sum(forge_node_slots) - sum(forge_job_running offset 1m) < 2"
labels = { team = "ops" }
keep_firing_for = "10m"
`), config.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := alerting.New().Export(cfg.Alerts)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation)
	if len(errs) > 0 {
		t.Fatalf("Prometheus refuses the rules: %v\n%s", errs, text)
	}
	var got []string
	for _, rule := range groups.Groups[0].Rules {
		got = append(got, fmt.Sprintf("%s for %s (%s) %s: %s", rule.Alert, rule.For, rule.KeepFiringFor, rule.Labels["severity"], rule.Expr))
	}
	want := []string{
		`no_scheduler_leader for 30s (0s) critical: sum(forge_leader_is_leader{role='scheduler'}) == 0 or absent(forge_leader_is_leader{role="scheduler"})`,
		`frequent_failovers for 0s (0s) warning: rate(forge_leader_failovers_total[5m]) > 5`,
		`few for 0s (10m) warning: sum(forge_node_slots) - sum(forge_job_running offset 1m) < 2 or absent(forge_node_slots) or absent(forge_job_running)`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRangesWithinTheRetention checks that retention.metrics bounds the ranges of a
// condition.
func TestRangesWithinTheRetention(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Alerts = []config.Alert{{Name: "a", Condition: "rate(forge_leader_failovers_total[2d]) > 0"}}
	for keep, want := range map[time.Duration]int{47 * time.Hour: 1, 48 * time.Hour: 0} {
		cfg.Retention.Metrics = config.Duration(keep)
		if problems := alerts.CheckFile(cfg, alerting.New().Judge); len(problems) != want {
			t.Errorf("kept for %s: %v, want %d problems", keep, problems, want)
		}
	}
}
