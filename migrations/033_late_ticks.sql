-- +goose NO TRANSACTION
-- +goose Up

-- Finds what was recorded long after its tick: backfills, say, and what waited in a
-- queue. It may have to stay where all else of its age goes. Built while others write;
-- an earlier attempt may have been interrupted.
DROP INDEX IF EXISTS forge_cron_ticks_late;
CREATE INDEX CONCURRENTLY forge_cron_ticks_late ON forge_cron_ticks (recorded_at)
    WHERE recorded_at - tick > interval '1 hour';

-- +goose Down
DROP INDEX IF EXISTS forge_cron_ticks_late;
