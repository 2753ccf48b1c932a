-- +goose Up

-- Finds the crons whose jobs are of a queue. Ticks do not change the definition, so they do
-- not touch the index.
CREATE INDEX forge_crons_queue ON forge_crons ((spec ->> 'queue'), name) WHERE removed_at IS NULL;

-- +goose Down
DROP INDEX forge_crons_queue;
