// Package rollupstore owns forge_metrics_rollups: the history of the cluster's
// metrics, in windows of a minute, five minutes and an hour.
//
// The leader of the metrics aggregator writes a window once it has ended:
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
package rollupstore
