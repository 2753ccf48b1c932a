-- +goose Up

-- How often the node hands its metrics over: three times that without a report
-- means that it has stopped to. Nodes of earlier versions do not say.
ALTER TABLE forge_metrics_nodes ADD COLUMN every interval NOT NULL DEFAULT '15 seconds';

-- +goose Down
ALTER TABLE forge_metrics_nodes DROP COLUMN every;
