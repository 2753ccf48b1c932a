// Package alerting evaluates [[alerts]] with Prometheus' engine and notifies the receivers
// of [notify.NAME] with Alertmanager's templates and messages. A program that embeds forge
// passes it to the node; a program that does not import it compiles neither engine nor templates:
//
//	node, err := forge.New(cfg, forge.WithAlerts(alerting.New()))
//
// After each sum (metrics.scrape_interval) the leader of the metrics aggregator evaluates
// the conditions over the cluster's totals. It keeps in memory only what the conditions
// need: the series that they name, for as long as their ranges reach back. A leader that
// takes over first reads these from forge_metrics_cluster. The states of the conditions are
// in forge_alerts:
//
//	condition holds --> pending --for--> firing --condition ceases--> resolved
//	                       └─ceases─> forgotten
//
// Each step is one transaction under the fence, together with the messages to the
// receivers. So after a failover a firing alert continues to fire without another message,
// and one whose condition ceased meanwhile is resolved with one. While nothing changes,
// nothing is written.
//
// The alerts are those of the configuration in force, not those of the leader's file. When
// no node reports, as after an outage of the database, there is nothing to evaluate, and
// every alert keeps its state.
package alerting
