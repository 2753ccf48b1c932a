-- +goose Up

-- The kinds of a node's workers whose jobs River's client runs instead of forge's executor, and why.
ALTER TABLE forge_nodes ADD COLUMN river_kinds jsonb NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE forge_nodes DROP COLUMN river_kinds;
