-- +goose Up

-- The gauge forge_node_count had a name that Prometheus keeps for a part of a histogram.
-- Its totals and its history go on under the new one.
UPDATE forge_metrics_cluster SET metric = 'forge_nodes' WHERE metric = 'forge_node_count';
UPDATE forge_metrics_rollups SET metric = 'forge_nodes' WHERE metric = 'forge_node_count';

-- +goose Down
UPDATE forge_metrics_cluster SET metric = 'forge_node_count' WHERE metric = 'forge_nodes';
UPDATE forge_metrics_rollups SET metric = 'forge_node_count' WHERE metric = 'forge_nodes';
