package main

// row is a row of the dashboard.
type row struct {
	title  string
	panels []panel
}

// panel is a panel with its queries.
type panel struct {
	title, about string
	kind         string // of Grafana: timeseries, stat
	unit         string // of Grafana
	queries      []query
}

// query is a query of Prometheus with the legend of its series.
type query struct{ expr, legend string }

const (
	timeSeries = "timeseries"
	stat       = "stat"

	seconds, short, perSecond, bytes, percent = "s", "short", "ops", "bytes", "percentunit"
)

// rate is the range of a rate: Grafana chooses it by the interval of the scrapes.
const rate = "[$__rate_interval]"

// percentiles returns the queries of the percentiles of a histogram.
func percentiles(metric string) (queries []query) {
	for _, p := range []struct{ quantile, legend string }{{"0.5", "p50"}, {"0.95", "p95"}, {"0.99", "p99"}} {
		queries = append(queries, query{"histogram_quantile(" + p.quantile + ", sum by (le) (rate(" + metric + "_bucket" + rate + ")))", p.legend})
	}
	return queries
}

// worst returns the query of the highest 99th percentiles of a histogram by a label.
func worst(metric, label string) []query {
	return []query{{"topk(10, histogram_quantile(0.99, sum by (le, " + label + ") (rate(" + metric + "_bucket" + rate + "))))", "{{" + label + "}}"}}
}

// rates returns the query of the sums of a counter's rates by a label.
func rates(metric, label string) []query {
	return []query{{"sum by (" + label + ") (rate(" + metric + rate + "))", "{{" + label + "}}"}}
}

// rows are the dashboard. Each panel answers a question that an operator has.
var rows = []row{
	{"Now", []panel{
		{"Leaders", "Each role has one. 0 for more than a few seconds: no node leads it.", stat, short, []query{{"sum by (role) (forge_leader_is_leader)", "{{role}}"}}},
		{"Nodes", "A dead node stopped without leaving.", stat, short, []query{{"max by (state) (forge_nodes)", "{{state}}"}}},
		{"Jobs that found no node", "All slots are taken, or no node has the capability, the tags or a worker.", stat, short, []query{{"sum(forge_assignment_waiting)", "waiting"}}},
		{"Failed attempts", "Failed, timed out, or lost with their node; of all attempts that finished.", stat, percent, []query{{
			`sum(rate(forge_job_finished_total{outcome=~"failed|timed_out|lost"}` + rate + `)) / sum(rate(forge_job_finished_total` + rate + `))`, "failed",
		}}},
	}},
	{"Leadership", []panel{
		{"Leading node", "1 on the node that leads the role.", timeSeries, short, []query{{"forge_leader_is_leader == 1", "{{role}} on {{node_id}}"}}},
		{"Time without a leader", "The longest gap before a node took a role, estimated by the bounds of buckets.", timeSeries, seconds, []query{{"histogram_quantile(1, sum by (le, role) (rate(forge_leader_gap_seconds_bucket" + rate + ")))", "{{role}}"}}},
		{"Changes of leaders", "Terms won, by role, in the range of a point.", timeSeries, short, []query{{`sum by (role) (increase(forge_leader_elections_total{result="won"}` + rate + `))`, "{{role}}"}}},
		{"Lease remaining", "The work stops when it reaches 0.", timeSeries, seconds, []query{{"min by (role) (forge_leader_lease_remaining_seconds and forge_leader_is_leader == 1)", "{{role}}"}}},
		{"Renewals", "Renewals of leases by result.", timeSeries, perSecond, rates("forge_leader_renewals_total", "result")},
		{"Errors of Lease objects", "Times that nodes could not compete for the Lease objects of Kubernetes, which elect only with that strategy.", timeSeries, perSecond, rates("forge_leader_lease_errors_total", "node_id")},
		{"Refused writes", "Writes of a deposed leader. The fence did its work; a node was frozen or cut off.", timeSeries, short, []query{{"sum by (role) (increase(forge_leader_fenced_writes_total" + rate + "))", "{{role}}"}}},
	}},
	{"Crons", []panel{
		{"Ticks", "Due ticks by verdict.", timeSeries, perSecond, rates("forge_cron_ticks_total", "verdict")},
		{"Delay of ticks", "From a tick to the commit of its job.", timeSeries, seconds, percentiles("forge_cron_delay_seconds")},
		{"Missed ticks", "Ticks that no leader could fire when they were due; the ten crons with the most.", timeSeries, short, []query{{"topk(10, sum by (cron) (increase(forge_cron_missed_total" + rate + ")))", "{{cron}}"}}},
		{"Ticks that failed to fire", "Ticks whose job could not be inserted; the ten crons with the most.", timeSeries, short, []query{{"topk(10, sum by (cron) (increase(forge_cron_failures_total" + rate + ")))", "{{cron}}"}}},
		{"Runs that failed", "Failed attempts of crons; the ten with the most.", timeSeries, perSecond, []query{{`topk(10, sum by (cron) (rate(forge_cron_job_finished_total{outcome=~"failed|timed_out|lost"}` + rate + `)))`, "{{cron}}"}}},
		{"Slowest crons", "The 99th percentile of how long attempts ran; the ten highest.", timeSeries, seconds, worst("forge_cron_job_duration_seconds", "cron")},
	}},
	{"Jobs", []panel{
		{"Enqueued", "The ten kinds with the most.", timeSeries, perSecond, []query{{"topk(10, sum by (kind) (rate(forge_job_enqueued_total" + rate + ")))", "{{kind}}"}}},
		{"Finished", "Attempts by outcome.", timeSeries, perSecond, rates("forge_job_finished_total", "outcome")},
		{"Wait", "From due to started.", timeSeries, seconds, percentiles("forge_job_wait_seconds")},
		{"Duration", "How long attempts ran.", timeSeries, seconds, percentiles("forge_job_duration_seconds")},
		{"Slowest kinds", "The 99th percentile of how long attempts ran; the ten highest.", timeSeries, seconds, worst("forge_job_duration_seconds", "kind")},
		{"Running", "The ten kinds with the most.", timeSeries, short, []query{{"topk(10, sum by (kind) (forge_job_running))", "{{kind}}"}}},
		{"Dead letters", "Jobs that used up their attempts; the ten kinds with the most.", timeSeries, short, []query{{"topk(10, sum by (kind) (increase(forge_job_dead_letters_total" + rate + ")))", "{{kind}}"}}},
		{"Orphaned", "Jobs that ran on nodes that went away, and those put back.", timeSeries, short, []query{
			{"sum(increase(forge_job_orphaned_total" + rate + "))", "orphaned"}, {"sum(increase(forge_job_rescued_total" + rate + "))", "rescued"},
		}},
	}},
	{"Queues", []panel{
		{"Depth", "Unfinished jobs by queue and state.", timeSeries, short, []query{{"max by (queue, state) (forge_queue_depth)", "{{queue}} {{state}}"}}},
		{"Oldest waiting job", "How long the oldest available job of each queue has waited.", timeSeries, seconds, []query{{"max by (queue) (forge_queue_oldest_waiting_seconds)", "{{queue}}"}}},
		{"Wait by queue", "The 99th percentile from due to started.", timeSeries, seconds, worst("forge_queue_job_wait_seconds", "queue")},
		{"Paused", "For how long queues have been paused.", timeSeries, seconds, []query{{"max by (queue) (forge_queue_paused_seconds)", "{{queue}}"}}},
		{"Offers", "Jobs that the leader offered, that nodes claimed, and that they could no longer claim.", timeSeries, perSecond, []query{
			{"sum(rate(forge_assignment_offers_total" + rate + "))", "offered"},
			{"sum(rate(forge_assignment_claims_total" + rate + "))", "claimed"},
			{"sum(rate(forge_assignment_refused_total" + rate + "))", "refused"},
		}},
		{"Steps of the leader", "How long the scheduler's leader takes to read available jobs and to offer them: the 99th percentile.", timeSeries, seconds, []query{{"histogram_quantile(0.99, sum by (le) (rate(forge_assignment_step_duration_seconds_bucket" + rate + ")))", "step"}}},
		{"Waits for limits", "How long the oldest job that a limit holds back has been due.", timeSeries, seconds, []query{{"max by (scope, name, limit, key) (forge_limit_wait_seconds) or vector(0)", "{{scope}} {{name}} {{limit}} {{key}}"}}},
		{"Jobs without a worker", "Available jobs whose kind has no worker on any live node.", timeSeries, short, []query{{"sum by (kind) (forge_assignment_unworked) or vector(0)", "{{kind}}"}}},
	}},
	{"Nodes", []panel{
		{"Slots in use", "Of the slots of each node.", timeSeries, percent, []query{{"max by (node_id) (forge_node_slots_used) / max by (node_id) (forge_node_slots)", "{{node_id}}"}}},
		{"Ready", "1 while the node can work, as /readyz reports.", timeSeries, short, []query{{"min by (instance) (forge_node_ready)", "{{instance}}"}}},
		{"Failed heartbeats", "Heartbeats that the database did not confirm.", timeSeries, perSecond, []query{{`sum by (node_id) (rate(forge_node_heartbeats_total{result="failure"}` + rate + `))`, "{{node_id}}"}}},
		{"Starved", "Time for which a process waited for a processor, each second. Work is late by as much.", timeSeries, percent, []query{{"sum by (instance) (rate(forge_node_starved_seconds_total" + rate + "))", "{{instance}}"}}},
		{"Clock", "How far a node's clock is ahead of the database's.", timeSeries, seconds, []query{{"max by (node_id) (forge_node_clock_offset_seconds)", "{{node_id}}"}}},
		{"Starts of commands", "Seconds that starting a command takes.", timeSeries, seconds, []query{{"max by (instance) (forge_command_start_seconds)", "{{instance}}"}}},
		{"Processor", "Processors in use.", timeSeries, short, []query{{`rate(process_cpu_seconds_total{job="forge"}` + rate + `)`, "{{instance}}"}}},
		{"Memory", "Resident memory.", timeSeries, bytes, []query{{`process_resident_memory_bytes{job="forge"}`, "{{instance}}"}}},
		{"Configuration", "Nodes whose file differs from the one in force, and nodes that refused their edited file.", timeSeries, short, []query{
			{"max(forge_config_drifting_nodes)", "differs"}, {"count(forge_config_reload_success == 0) or vector(0)", "refused"},
		}},
	}},
	{"Database", []panel{
		{"Tables", "Size with indexes.", timeSeries, bytes, []query{{"max by (table) (forge_table_bytes)", "{{table}}"}}},
		{"Deleted rows", "Rows that retention deleted.", timeSeries, perSecond, rates("forge_compactor_removed_rows_total", "of")},
		{"Since the last pass of the log compactor", "Nothing is deleted while it stands still.", timeSeries, seconds, []query{{"time() - max(forge_compactor_last_pass_timestamp_seconds)", "last pass"}}},
		{"Oldest transaction", "Dead rows stay while it lasts, and queues slow down.", timeSeries, seconds, []query{{"max by (holder) (forge_database_oldest_transaction_seconds)", "{{holder}}"}}},
		{"Oldest snapshot", "Transactions started since.", timeSeries, short, []query{{"max by (holder) (forge_database_oldest_snapshot_transactions)", "{{holder}}"}}},
		{"Replication slots", "Write-ahead log that the server keeps for the slot that lags most.", timeSeries, bytes, []query{{"max(forge_database_replication_slot_bytes)", "kept"}}},
		{"Clock set back", "By how much the newest recorded time is ahead of the database's clock.", timeSeries, seconds, []query{{"max(forge_database_clock_set_back_seconds)", "set back"}}},
	}},
}
