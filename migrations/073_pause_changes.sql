-- +goose Up

-- The last pause or resumption of a cron by hand: when, by whom and why. A change of many crons
-- has an id, by which it is undone.
ALTER TABLE forge_crons ADD COLUMN pause_change jsonb;
CREATE INDEX forge_crons_pause_operation ON forge_crons ((pause_change ->> 'operation'))
    WHERE pause_change ->> 'operation' IS NOT NULL;

-- +goose Down
DROP INDEX forge_crons_pause_operation;
ALTER TABLE forge_crons DROP COLUMN pause_change;
