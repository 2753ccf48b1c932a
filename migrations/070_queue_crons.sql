-- +goose Up

-- Finds the crons whose jobs are of a queue. Ticks do not change the definition, so they do
-- not touch the index. It leaves out the crons without a queue, so that no other search takes
-- it for a list of all crons.
CREATE INDEX forge_crons_queue ON forge_crons ((spec ->> 'queue'), name)
    WHERE removed_at IS NULL AND spec ->> 'queue' IS NOT NULL;

-- +goose Down
DROP INDEX forge_crons_queue;
