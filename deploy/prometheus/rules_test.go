// Package prometheus_test proves the alert rules with Prometheus' own parser
// and engine.
package prometheus_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// rules returns the rules of rules.yml by their names.
func rules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile("rules.yml", false, model.UTF8Validation)
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil {
		t.FailNow()
	}
	byName := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			if _, ok := byName[rule.Alert]; ok || rule.Alert == "" {
				t.Errorf("rule %q of group %s is not an alert of its own name", rule.Alert, group.Name)
			}
			byName[rule.Alert] = rule
		}
	}
	if len(byName) == 0 {
		t.Fatal("no rules")
	}
	return byName
}

// Every metric and every label that a rule names is one that nodes export.
func TestRulesNameExistingSeries(t *testing.T) {
	t.Parallel()
	series := map[string]metrics.Series{}
	for _, s := range metrics.New("v0").Series() {
		series[s.Name] = s
	}
	for name, rule := range rules(t) {
		expr, err := parser.ParseExpr(rule.Expr)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			switch node := node.(type) {
			case *parser.VectorSelector:
				known, ok := series[node.Name]
				if !ok {
					t.Errorf("%s: no node exports %s", name, node.Name)
				}
				for _, matcher := range node.LabelMatchers {
					if matcher.Name != model.MetricNameLabel {
						checkLabel(t, name, known, matcher.Name)
					}
				}
			case *parser.AggregateExpr:
				for _, label := range node.Grouping {
					for _, selector := range parser.ExtractSelectors(node) {
						checkLabel(t, name, series[metricName(selector)], label)
					}
				}
			}
			return nil
		})
	}
}

func metricName(selector []*labels.Matcher) string {
	for _, matcher := range selector {
		if matcher.Name == model.MetricNameLabel {
			return matcher.Value
		}
	}
	return ""
}

func checkLabel(t *testing.T, rule string, series metrics.Series, label string) {
	t.Helper()
	if !slices.Contains(series.Labels, label) {
		t.Errorf("%s: %s has no label %s", rule, series.Name, label)
	}
}

func TestRulesAreExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if heading := strings.TrimLeft(line, "#"); heading != line {
			anchors[strings.ReplaceAll(strings.ToLower(strings.TrimSpace(heading)), " ", "-")] = true
		}
	}
	for name, rule := range rules(t) {
		anchor, ok := strings.CutPrefix(rule.Annotations["runbook"], "docs/troubleshooting.md#")
		if !ok || !anchors[anchor] {
			t.Errorf("%s: its runbook %q is no heading of docs/troubleshooting.md", name, rule.Annotations["runbook"])
		}
		if url := "https://github.com/forge-scheduler/forge/blob/main/" + rule.Annotations["runbook"]; rule.Annotations["runbook_url"] != url {
			t.Errorf("%s: the address of its runbook is %q, want %q", name, rule.Annotations["runbook_url"], url)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", name)
		}
		if severity := rule.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s is of severity %q", name, severity)
		}
	}
}

const noSeries = ""

// Each case is evaluated five minutes after its series began, one sample in ten
// seconds.
func TestRulesFire(t *testing.T) {
	t.Parallel()
	all := rules(t)
	for _, test := range []struct {
		rule, name, series string
		fires              bool
	}{
		{"ForgeNoScheduler", "no node at all", noSeries, true},
		{"ForgeNoScheduler", "two standbys", leads("scheduler", 0, 0), true},
		{"ForgeNoScheduler", "a leader", leads("scheduler", 0, 1), false},
		{"ForgeNoScheduler", "a leader of another role", leads("scheduler", 0) + leads("log_compactor", 1), true},
		{"ForgeNoMetricsAggregator", "no node at all", noSeries, true},
		{"ForgeNoMetricsAggregator", "two standbys", leads("metrics_aggregator", 0, 0), true},
		{"ForgeNoMetricsAggregator", "a leader", leads("metrics_aggregator", 1), false},
		{"ForgeNoLogCompactor", "no node at all", noSeries, true},
		{"ForgeNoLogCompactor", "two standbys", leads("log_compactor", 0, 0), true},
		{"ForgeNoLogCompactor", "a leader", leads("log_compactor", 1), false},
		{"ForgeMoreThanOneLeader", "one of each role", leads("scheduler", 1, 0) + leads("log_compactor", 0, 1), false},
		{"ForgeMoreThanOneLeader", "two of a role", leads("scheduler", 1, 1), true},
		{"ForgeFrequentFailovers", "one of each node", `forge_leader_failovers_total{role="scheduler",node_id="a"} 0x10 1x20
			forge_leader_failovers_total{role="scheduler",node_id="b"} 0x20 1x10`, false},
		{"ForgeFrequentFailovers", "to and fro", `forge_leader_failovers_total{role="scheduler",node_id="a"} 0x5 1x5 2x5 3x5 4x10
			forge_leader_failovers_total{role="scheduler",node_id="b"} 0x5 1x5 2x5 3x5 4x10`, true},
		{"ForgeRepeatedStepDowns", "one of each role", `forge_leader_elections_total{role="scheduler",node_id="a",result="won"} 0x10 1x20
			forge_leader_elections_total{role="log_compactor",node_id="a",result="won"} 0x20 1x10`, false},
		{"ForgeRepeatedStepDowns", "lost and taken by one node", `forge_leader_elections_total{role="scheduler",node_id="a",result="won"} 0+1x30`, true},
		{"ForgeQueuePaused", "paused for days without jobs", `forge_queue_paused_seconds{queue="q"} 200000x30
			forge_queue_oldest_waiting_seconds{queue="q"} 0x30`, false},
		{"ForgeQueuePaused", "paused today", `forge_queue_paused_seconds{queue="q"} 7200x30
			forge_queue_oldest_waiting_seconds{queue="q"} 7200x30`, false},
		{"ForgeQueuePaused", "paused for days with jobs", `forge_queue_paused_seconds{queue="q"} 200000x30
			forge_queue_oldest_waiting_seconds{queue="q"} 60x30`, true},
		{"ForgeOldestJobWaiting", "a moment", `forge_queue_paused_seconds{queue="q"} 0x30
			forge_queue_oldest_waiting_seconds{queue="q"} 60x30`, false},
		{"ForgeOldestJobWaiting", "paused", `forge_queue_paused_seconds{queue="q"} 200000x30
			forge_queue_oldest_waiting_seconds{queue="q"} 200000x30`, false},
		{"ForgeOldestJobWaiting", "for hours", `forge_queue_paused_seconds{queue="q"} 0x30
			forge_queue_oldest_waiting_seconds{queue="q"} 7200x30`, true},
		{"ForgeOldSnapshot", "short", `forge_database_oldest_transaction_seconds{holder="session"} 60x30
			forge_database_oldest_snapshot_transactions{holder="slot"} 1000x30`, false},
		{"ForgeOldSnapshot", "a long transaction", `forge_database_oldest_transaction_seconds{holder="session"} 7200x30`, true},
		{"ForgeOldSnapshot", "an abandoned slot", `forge_database_oldest_snapshot_transactions{holder="slot"} 2000000x30`, true},
		{"ForgeReplicationSlotLags", "a little", `forge_database_replication_slot_bytes 1e9x30`, false},
		{"ForgeReplicationSlotLags", "much", `forge_database_replication_slot_bytes 2e10x30`, true},
		{"ForgeDatabaseClockSetBack", "not", `forge_database_clock_set_back_seconds 0x30`, false},
		{"ForgeDatabaseClockSetBack", "by an hour", `forge_database_clock_set_back_seconds 3600x30`, true},
		{"ForgeNodeNotReady", "ready", `forge_node_ready 1x30`, false},
		{"ForgeNodeNotReady", "one is not", `forge_node_ready{instance="a"} 1x30
			forge_node_ready{instance="b"} 0x30`, true},
		{"ForgeNodeClock", "in time", `forge_node_clock_offset_seconds{node_id="a"} 0.1x30`, false},
		{"ForgeNodeClock", "set back", `forge_node_clock_offset_seconds{node_id="a"} -90x30`, true},
		{"ForgeLeaseErrors", "one role after the other", `forge_leader_lease_errors_total{role="scheduler",node_id="a"} 0x20 4x10
			forge_leader_lease_errors_total{role="log_compactor",node_id="a"} 0x20 4x10`, false},
		{"ForgeLeaseErrors", "again and again", `forge_leader_lease_errors_total{role="scheduler",node_id="a"} 0x20 0+2x10`, true},
		{"ForgeFencedWrites", "none", `forge_leader_fenced_writes_total{role="scheduler",node_id="a"} 4x30`, false},
		{"ForgeFencedWrites", "one", `forge_leader_fenced_writes_total{role="scheduler",node_id="a"} 0x20 1x10`, true},
		{"ForgeCronTicksMissed", "none", `forge_cron_missed_total{cron="c"} 3x30`, false},
		{"ForgeCronTicksMissed", "some", `forge_cron_missed_total{cron="c"} 0x20 3x10`, true},
		{"ForgeCronFailures", "none", `forge_cron_failures_total{cron="c"} 0x30`, false},
		{"ForgeCronFailures", "one", `forge_cron_failures_total{cron="c"} 0x20 1x10`, true},
		{"ForgeJobsOrphaned", "none", `forge_job_orphaned_total 2x30`, false},
		{"ForgeJobsOrphaned", "some", `forge_job_orphaned_total 2x20 5x10`, true},
		{"ForgeJobsWaiting", "none", `forge_assignment_waiting 0x30`, false},
		{"ForgeJobsWaiting", "some", `forge_assignment_waiting 7x30`, true},
		{"ForgeLimitStarving", "no limit holds a job back", noSeries, false},
		{"ForgeLimitStarving", "for minutes", `forge_limit_wait_seconds{scope="queue",name="q",limit="key",key="acme"} 300x30`, false},
		{"ForgeLimitStarving", "for long", `forge_limit_wait_seconds{scope="queue",name="q",limit="key",key="acme"} 900x30
			forge_limit_wait_seconds{scope="queue",name="q",limit="key",key="other"} 5x30`, true},
		{"ForgeNodeDead", "no aggregator", noSeries, false},
		{"ForgeNodeDead", "left", `forge_nodes{state="left"} 2x30
			forge_nodes{state="dead"} 0x30`, false},
		{"ForgeNodeDead", "dead", `forge_nodes{state="dead"} 1x30`, true},
		{"ForgeConfigRefused", "taken over", `forge_config_reload_success 1x30`, false},
		{"ForgeConfigRefused", "refused", `forge_config_reload_success 1x10 0x20`, true},
		{"ForgeConfigDrift", "none", `forge_config_drifting_nodes 0x60`, false},
		{"ForgeConfigDrift", "one", `forge_config_drifting_nodes 1x60`, true},
	} {
		t.Run(test.rule+"/"+test.name, func(t *testing.T) {
			t.Parallel()
			rule, ok := all[test.rule]
			if !ok {
				t.Fatalf("no rule %s", test.rule)
			}
			if fires := fires(t, rule.Expr, test.series); fires != test.fires {
				t.Errorf("fires = %v, want %v", fires, test.fires)
			}
		})
	}
	for name := range all {
		if !testedBy(t, name) {
			t.Errorf("%s is evaluated by no case", name)
		}
	}
}

// testedBy says whether the source of this test has a case for the rule.
func testedBy(t *testing.T, rule string) bool {
	t.Helper()
	source, err := os.ReadFile("rules_test.go")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(source), `{"`+rule+`",`)
}

// leads is the series of one role on as many nodes as there are values.
func leads(role string, values ...int) string {
	var series strings.Builder
	for node, value := range values {
		fmt.Fprintf(&series, "forge_leader_is_leader{role=%q,node_id=\"%d\"} %dx30\n", role, node, value)
	}
	return series.String()
}

func TestScrapeExample(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("scrape.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		ScrapeConfigs []struct {
			JobName        string         `json:"job_name"`
			Authorization  map[string]any `json:"authorization"`
			ScrapeInterval model.Duration `json:"scrape_interval"`
			StaticConfigs  []struct {
				Targets []string `json:"targets"`
			} `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.UnmarshalStrict(body, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.ScrapeConfigs) != 1 || len(file.ScrapeConfigs[0].StaticConfigs) != 1 {
		t.Fatalf("scrape.yml holds %+v", file)
	}
	if every := time.Duration(file.ScrapeConfigs[0].ScrapeInterval); every <= 0 || every > 10*time.Second {
		t.Errorf("scrapes every %s; the alerts want three scrapes in 30 s", every)
	}
}
