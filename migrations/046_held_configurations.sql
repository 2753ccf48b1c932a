-- +goose Up

-- The name of the cluster that a configuration was written for; empty: not known. A
-- file of another cluster is not applied unasked.
ALTER TABLE forge_config ADD COLUMN cluster text NOT NULL DEFAULT '';

-- Why the node's file waits for forge apply --yes; empty: it does not.
ALTER TABLE forge_nodes ADD COLUMN config_waiting text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE forge_nodes DROP COLUMN config_waiting;
ALTER TABLE forge_config DROP COLUMN cluster;
