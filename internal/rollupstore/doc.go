// Package rollupstore owns forge_metrics_rollups: the history of the cluster's
// metrics, by windows of a minute, of five and of an hour.
//
// The leader of the metrics aggregator writes a window once it is over:
//
//	forge_metrics_cluster --a minute--> 1m --five of them--> 5m --twelve of them--> 1h
//
// A window is worked out from what stands in the database and from nothing that
// the leader remembers. So a leader that takes over writes the very windows that
// its predecessor would have, and those of the time between, as far as there are
// sums.
//
// A row holds of a gauge its mean over time, its least, greatest and last value;
// of a counter how much it rose; of a histogram what it was given. A counter or a
// histogram that did not move has no row for the window: it rose by 0.
package rollupstore
