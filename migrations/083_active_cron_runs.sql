-- +goose NO TRANSACTION
-- +goose Up

-- Finds the runs of a cron that have not ended, even if many newer ones have. A claim changes
-- none of its columns, so claims stay heap-only updates. The expression differs from that of
-- forge_river_job_cron, which has all runs, so that no plan uses one index in place of the other.
--
-- It is built while others write, and waits for older transactions. An earlier attempt may have
-- been interrupted, which leaves an invalid index.
DROP INDEX CONCURRENTLY IF EXISTS forge_river_job_cron_active;
CREATE INDEX CONCURRENTLY forge_river_job_cron_active ON river_job ((metadata #>> '{forge:cron}'), id)
    WHERE finalized_at IS NULL AND metadata ? 'forge:cron';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS forge_river_job_cron_active;
