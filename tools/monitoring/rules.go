package main

import (
	"fmt"
	"strings"
)

// group is a group of alert rules.
type group struct {
	name  string
	rules []rule
}

// rule is an alert rule.
type rule struct {
	comment  string // why it is as it is; lines
	name     string
	expr     string
	wait     string // for; empty: the rule fires at once
	severity string
	summary  string // a template of Prometheus
	about    string
	runbook  string // a heading of docs/troubleshooting.md
}

const (
	critical = "critical"
	warning  = "warning"
	// guide is the page whose headings are the runbooks.
	guide   = "docs/troubleshooting.md"
	project = "https://github.com/forge-scheduler/forge/blob/main/"
)

// groups are the rules of deploy/prometheus/rules.yml.
var groups = []group{
	{"forge-leaders", []rule{
		{
			comment: "sum() over no series is empty, not 0: absent() fires when no node is scraped.\nA hand-over takes at most a few seconds.",
			name:    "ForgeNoScheduler", severity: critical, wait: "30s",
			expr:    `sum(forge_leader_is_leader{role="scheduler"}) == 0 or absent(forge_leader_is_leader{role="scheduler"})`,
			summary: "No node leads the scheduler.",
			about:   "No cron fires and no job is assigned. Ticks that fall due now are recorded and treated by their catch_up when a leader is back.",
			runbook: "no-leader",
		},
		{
			name: "ForgeNoMetricsAggregator", severity: critical, wait: "30s",
			expr:    `sum(forge_leader_is_leader{role="metrics_aggregator"}) == 0 or absent(forge_leader_is_leader{role="metrics_aggregator"})`,
			summary: "No node leads the metrics aggregator.",
			about:   "The cluster's own sums stand still. Crons and jobs go on.",
			runbook: "no-leader",
		},
		{
			name: "ForgeNoLogCompactor", severity: critical, wait: "30s",
			expr:    `sum(forge_leader_is_leader{role="log_compactor"}) == 0 or absent(forge_leader_is_leader{role="log_compactor"})`,
			summary: "No node leads the log compactor.",
			about:   "Nothing that is past its retention is deleted and tables grow. Crons and jobs go on.",
			runbook: "no-leader",
		},
		{
			comment: "During a hand-over, scrapes at different times may show two leaders, but not\nfor a minute.",
			name:    "ForgeMoreThanOneLeader", severity: critical, wait: "1m",
			expr:    "sum by (role) (forge_leader_is_leader) > 1",
			summary: "{{ $value }} nodes say that they lead {{ $labels.role }}.",
			about:   "The database accepts the writes of one of them only, unless there are two primaries. Check that all nodes use the same database.",
			runbook: "more-than-one-leader",
		},
		{
			name: "ForgeFrequentFailovers", severity: warning,
			expr:    "sum by (role) (increase(forge_leader_failovers_total[5m])) > 5",
			summary: `{{ $labels.role }} changed hands {{ printf "%.0f" $value }} times in 5 minutes.`,
			about:   "Nodes crash, hang, or lose the database. Leadership history says why each tenure ended.",
			runbook: "frequent-failovers",
		},
		{
			comment: "Includes a role that the same node loses and wins again, which is no failover.",
			name:    "ForgeRepeatedStepDowns", severity: warning,
			expr:    `sum by (role) (increase(forge_leader_elections_total{result="won"}[15m])) > 5`,
			summary: `{{ $labels.role }} was taken {{ printf "%.0f" $value }} times in 15 minutes.`,
			about:   "Its leaders do not last. Leadership history says why each term ended.",
			runbook: "frequent-failovers",
		},
		{
			comment: "Only with strategy = \"kubernetes\".",
			name:    "ForgeLeaseErrors", severity: warning,
			expr:    "sum by (role, node_id) (increase(forge_leader_lease_errors_total[5m])) > 5",
			summary: "{{ $labels.node_id }} cannot compete for the Lease object of {{ $labels.role }}.",
			about:   "Its requests to Kubernetes' API server fail, or another cluster uses the Lease. Present leaders lead on; a role that loses its leader gets no other.",
			runbook: "no-leader",
		},
		{
			name: "ForgeFencedWrites", severity: warning,
			expr:    "sum by (role) (increase(forge_leader_fenced_writes_total[5m])) > 0",
			summary: "Writes of a deposed leader of {{ $labels.role }} were refused.",
			about:   "The fence did its work and nothing was damaged; a node was frozen or cut off while it led.",
			runbook: "fenced-writes",
		},
	}},
	{"forge-work", []rule{
		{
			name: "ForgeCronTicksMissed", severity: warning,
			expr:    "sum by (cron) (increase(forge_cron_missed_total[10m])) > 0",
			summary: `Cron {{ $labels.cron }} missed {{ printf "%.0f" $value }} ticks in 10 minutes.`,
			about:   "They fell due while nobody could fire them, and its catch_up skips them. Each stands in the ledger.",
			runbook: "missed-ticks",
		},
		{
			name: "ForgeCronFailures", severity: warning,
			expr:    "sum by (cron) (increase(forge_cron_failures_total[10m])) > 0",
			summary: "Cron {{ $labels.cron }} could not insert its job.",
			about:   "The reason stands in the ledger.",
			runbook: "missed-ticks",
		},
		{
			name: "ForgeJobsOrphaned", severity: warning,
			expr:    "sum(increase(forge_job_orphaned_total[10m])) > 0",
			summary: `{{ printf "%.0f" $value }} jobs were running on nodes that went away.`,
			about:   "They are put back and run again on another node.",
			runbook: "orphaned-jobs",
		},
		{
			name: "ForgeJobsWaiting", severity: warning, wait: "15m",
			expr:    "sum(forge_assignment_waiting) > 0",
			summary: "{{ $value }} available jobs have found no node for 15 minutes.",
			about:   "All slots are taken, or no node has the capability, the tags or a worker for them.",
			runbook: "waiting-jobs",
		},
		{
			name: "ForgeQueuePaused", severity: warning,
			expr:    "max by (queue) (forge_queue_paused_seconds) > 86400 and max by (queue) (forge_queue_oldest_waiting_seconds) > 0",
			summary: "Queue {{ $labels.queue }} has been paused for {{ humanizeDuration $value }} while jobs wait.",
			about:   "Nobody has resumed it. forge queue resume does.",
			runbook: "paused-queues",
		},
		{
			comment: "Paused queues are excluded: their jobs wait on purpose.",
			name:    "ForgeOldestJobWaiting", severity: warning,
			expr:    "max by (queue) (forge_queue_oldest_waiting_seconds) > 3600 unless max by (queue) (forge_queue_paused_seconds) > 0",
			summary: "The oldest available job of queue {{ $labels.queue }} has waited for {{ humanizeDuration $value }}.",
			about:   "All slots are taken by newer or more urgent jobs, or no node can take it.",
			runbook: "waiting-jobs",
		},
		{
			comment: "The key is _other for the values beyond the 50 with the longest waits of a limit.",
			name:    "ForgeLimitStarving", severity: warning, wait: "1m",
			expr:    "max by (scope, name, limit, key) (forge_limit_wait_seconds) > 600",
			summary: "A limit of {{ $labels.scope }} {{ $labels.name }} has held back a job of the key '{{ $labels.key }}' for {{ humanizeDuration $value }}.",
			about:   "Jobs of the key come faster than the limit lets them run, the running ones do not end, or a job needs more units than the rate has.",
			runbook: "limits-that-hold-jobs-back",
		},
	}},
	{"forge-database", []rule{
		{
			name: "ForgeOldSnapshot", severity: warning, wait: "5m",
			expr:    "max by (holder) (forge_database_oldest_transaction_seconds) > 3600 or max by (holder) (forge_database_oldest_snapshot_transactions) > 1e6",
			summary: "A snapshot held by a {{ $labels.holder }} keeps VACUUM from removing dead rows.",
			about:   "Queues slow down the longer it lasts. forge doctor names the holder and how to end it.",
			runbook: "old-snapshots",
		},
		{
			name: "ForgeReplicationSlotLags", severity: warning, wait: "5m",
			expr:    "max(forge_database_replication_slot_bytes) >= 10 * 1024 ^ 3",
			summary: "A replication slot keeps {{ humanize1024 $value }}B of write-ahead log.",
			about:   "The disk of the server fills up. forge doctor names the slot.",
			runbook: "old-snapshots",
		},
		{
			name: "ForgeDatabaseClockSetBack", severity: warning,
			expr:    "max(forge_database_clock_set_back_seconds) > 1",
			summary: "The database's clock was set back by {{ humanizeDuration $value }} or more.",
			about:   "Ticks and jobs that were due later wait until the clock has caught up.",
			runbook: "clocks",
		},
	}},
	{"forge-nodes", []rule{
		{
			name: "ForgeNodeNotReady", severity: critical, wait: "1m",
			expr:    "forge_node_ready == 0",
			summary: "A node cannot work.",
			about:   "The database refuses what it writes (a full disk, revoked rights, read-only), or it does not reach it. Its /readyz says why.",
			runbook: "nodes-that-are-not-ready",
		},
		{
			name: "ForgeNodeClock", severity: warning, wait: "5m",
			expr:    "max by (node_id) (abs(forge_node_clock_offset_seconds)) > 1",
			summary: "The clock of node {{ $labels.node_id }} is {{ humanizeDuration $value }} apart from the database's.",
			about:   "Logs cannot be compared, and readers of a leader file are misled.",
			runbook: "clocks",
		},
		{
			comment: "A node that stops in good order has the state 'left' and is not counted.",
			name:    "ForgeNodeDead", severity: warning, wait: "1m",
			expr:    `max(forge_nodes{state="dead"}) > 0`,
			summary: "{{ $value }} nodes are dead.",
			about:   "They stopped without leaving. A row that is not taken up again by a restart goes after a day.",
			runbook: "dead-nodes",
		},
		{
			name: "ForgeConfigRefused", severity: warning, wait: "1m",
			expr:    "forge_config_reload_success == 0",
			summary: "A node has refused its edited forge.toml and goes on with what it had.",
			about:   "The event config_rejected and the node's log have the reason.",
			runbook: "refused-files",
		},
		{
			name: "ForgeConfigDrift", severity: warning, wait: "30m",
			expr:    "max(forge_config_drifting_nodes) > 0",
			summary: "{{ $value }} nodes have run another configuration than the one in force for half an hour.",
			about:   "forge node list -o wide says what differs.",
			runbook: "drift",
		},
	}},
}

const rulesHeader = `# Generated by go -C tools run ./monitoring ..; do not edit.
#
# Prometheus alerts for a forge cluster. Load them with
#
#   rule_files: [rules.yml]
#
# Prometheus must scrape every node: see scrape.yml. The rules add up all scraped
# nodes. If one Prometheus scrapes several clusters, add the label that distinguishes
# them to each selector.
#
# docs/metrics.md explains the metrics, docs/troubleshooting.md the alerts.
groups:
`

// writeRules returns the file of the rules.
func writeRules() string {
	var b strings.Builder
	b.WriteString(rulesHeader)
	for i, g := range groups {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "  - name: %s\n    rules:\n", g.name)
		for j, r := range g.rules {
			if j > 0 {
				b.WriteByte('\n')
			}
			r.write(&b)
		}
	}
	return b.String()
}

func (r rule) write(b *strings.Builder) {
	if r.comment != "" {
		for line := range strings.Lines(r.comment) {
			fmt.Fprintf(b, "      # %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	fmt.Fprintf(b, "      - alert: %s\n        expr: %s\n", r.name, r.expr)
	if r.wait != "" {
		fmt.Fprintf(b, "        for: %s\n", r.wait)
	}
	fmt.Fprintf(b, "        labels: {severity: %s}\n        annotations:\n", r.severity)
	fmt.Fprintf(b, "          summary: %s\n          description: %s\n", quoted(r.summary), quoted(r.about))
	fmt.Fprintf(b, "          runbook: %s#%s\n          runbook_url: %s%[1]s#%[2]s\n", guide, r.runbook, project)
}

// quoted returns a text as YAML. A text that begins with a brace would be a map.
func quoted(text string) string {
	if strings.HasPrefix(text, "{") {
		return "'" + text + "'"
	}
	return text
}
