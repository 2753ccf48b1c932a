-- +goose Up

-- What is looked for by state and queue are jobs that are not finished. Without the
-- finished ones this index is spared one of its three entries for each job, which is a
-- tenth of what a job costs the server, and stays small however many are kept.
DROP INDEX IF EXISTS river_job_prioritized_fetching_index;
CREATE INDEX river_job_prioritized_fetching_index ON river_job (state, queue, priority, scheduled_at, id)
    WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled');

-- +goose Down
DROP INDEX IF EXISTS river_job_prioritized_fetching_index;
CREATE INDEX river_job_prioritized_fetching_index ON river_job (state, queue, priority, scheduled_at, id);
