// Package alerts evaluates [[alerts]] with Prometheus' own engine, over the
// cluster's metrics, while this node leads the metrics aggregator.
//
// After each sum (metrics.scrape_interval) the aggregator hands its totals to a
// Watch, which keeps in memory what the conditions look at, and no more: the
// series that they name, for as long as their ranges reach back. A leader that
// takes over reads that from forge_metrics_cluster first. What became of the
// conditions stands in forge_alerts:
//
//	condition holds --> pending --for--> firing --condition ceases--> resolved
//	                       └─ceases─> forgotten
//
// Each step is one transaction under the fence, together with the messages to the
// receivers (package outbox). So after a failover an alert that fires goes on to
// fire without another message, and one whose condition ceased meanwhile is
// resolved with one. While nothing changes nothing is written.
//
// The alerts are those of the configuration in force, not those of the leader's
// file. Where no node reports, as after an outage of the database, there is
// nothing to judge, and every alert stays as it is.
package alerts
