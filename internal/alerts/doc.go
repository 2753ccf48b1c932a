// Package alerts evaluates [[alerts]] with Prometheus' own engine, over the
// cluster's metrics, while this node leads the metrics aggregator.
//
// After each sum (metrics.scrape_interval) the aggregator passes its totals to a
// Watch, which keeps in memory only what the conditions need: the
// series that they name, for as long as their ranges reach back. A leader that
// takes over first reads these from forge_metrics_cluster. The states of the
// conditions are in forge_alerts:
//
//	condition holds --> pending --for--> firing --condition ceases--> resolved
//	                       └─ceases─> forgotten
//
// Each step is one transaction under the fence, together with the messages to the
// receivers (package notifyqueue). So after a failover a firing alert continues to
// fire without another message, and one whose condition ceased meanwhile is
// resolved with one. While nothing changes, nothing is written.
//
// The alerts are those of the configuration in force, not those of the leader's
// file. When no node reports, as after an outage of the database, there is
// nothing to evaluate, and every alert keeps its state.
package alerts
