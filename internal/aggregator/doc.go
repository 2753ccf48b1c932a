// Package aggregator sums the nodes' metrics to the cluster's totals, and rolls the totals
// up. It owns forge_metrics_nodes, forge_metrics_cluster and forge_metrics_rollups.
//
// Every node runs a Reporter, which writes the node's series into
// its row of forge_metrics_nodes. The leader of the role metrics_aggregator runs
// Aggregator.Lead, which adds the rows up and writes the sums, fenced by its
// term, into forge_metrics_cluster:
//
//	node a -- Reporter --> forge_metrics_nodes (a) --\
//	node b -- Reporter --> forge_metrics_nodes (b) ----> Aggregator.Lead --> forge_metrics_cluster
//	                       forge_metrics_nodes ("") --/        ^
//	                       (nodes that are gone)               | counts river_job and forge_nodes
//
// # Sums that never decrease
//
// A counter restarts at 0 with its process, but the cluster's sum must not decrease. A
// node's row therefore has two parts: the samples of the reporting process, and the
// base, which is what all earlier processes of that node id counted. The first report
// of a new process adds the previous samples to the base (carry). The sum is base plus
// samples over all rows. The leader needs no memory, and the next leader continues
// from the same rows. A row whose node has been gone for a day is added to that of the
// empty node id and removed.
//
// Counts after a process' last report are lost if it crashes; an orderly end sends a
// last report.
//
// Gauges are summed over the live nodes that have reported recently.
//
// Histograms are counters with a sum and buckets. The label node_id is left out of the
// sums, except for the gauges of nodes that the leader itself sets: forge_node_reporting,
// forge_node_clock_offset_seconds and forge_node_slots_used.
//
// # Writes
//
// A sum is written when it changed, and all sums once a minute. A gauge that is no
// longer reported is written as 0 once. If the database's clock was set back, nothing
// is written until it has passed the newest sum: sums between older ones would look
// like counters that restarted.
//
// # Rollups
//
// forge_metrics_rollups has the history of the totals, in windows of a minute, five
// minutes and an hour. The leader writes a window once it has ended:
//
//	forge_metrics_cluster --a minute--> 1m --five of them--> 5m --twelve of them--> 1h
//
// A window is computed only from the database, not from the leader's memory. A new
// leader therefore writes the same windows as its predecessor would have, including
// those of the time without a leader, as far as there are sums.
//
// The row of a gauge holds its mean over time, its minimum, maximum and last value;
// that of a counter its increase; that of a histogram its observations. A counter or
// histogram that did not change has no row for the window: its increase is 0.
package aggregator
