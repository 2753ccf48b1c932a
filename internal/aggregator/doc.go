// Package aggregator adds the nodes' metrics up to the cluster's. It owns
// forge_metrics_nodes and forge_metrics_cluster.
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
// # Sums that never fall
//
// A counter begins again at 0 when its process does, and the cluster's sum must
// not. So a node's row holds two parts: the samples of the process that reports,
// and the base, which is what all earlier processes of that node id had counted.
// The first report of a new process adds the samples that it finds to the base
// (carry). The sum is then base plus samples over all rows: the leader needs no
// memory, and the next leader continues where the last one ended. A row whose
// node has been gone for a day is added to that of the empty node id and removed.
//
// What a process counted after its last report before a crash is lost; an
// orderly end reports once more.
//
// Gauges are summed over the nodes that live and have reported lately.
//
// Histograms are counters with a sum and buckets. A node's own labels (node_id)
// are left out of the sums, but for forge_node_reporting: whether a node that
// should report does.
//
// # What is written
//
// A sum is written when it changed, and all of them once a minute. A gauge that
// nobody reports any more is written as 0 once. Windows that are over are rolled
// up: see package rollupstore.
package aggregator
