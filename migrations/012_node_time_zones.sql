-- +goose Up

-- The release of the time zone database that a node goes by: two nodes with
-- different ones may come to different ticks.
ALTER TABLE forge_nodes ADD COLUMN tzdata text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE forge_nodes DROP COLUMN tzdata;
