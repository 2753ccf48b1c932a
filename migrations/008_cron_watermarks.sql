-- +goose Up

-- Every tick moves its cron's next_tick. Nothing finds crons by it: a leader
-- reads them all once and keeps their next ticks in memory. Without the index
-- the row is rewritten in its place and no index is touched.
DROP INDEX forge_crons_next_tick;

-- +goose Down
CREATE INDEX forge_crons_next_tick ON forge_crons (next_tick) WHERE removed_at IS NULL;
