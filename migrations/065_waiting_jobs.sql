-- +goose Up

-- Scheduled, retryable and pending jobs by state and queue: counts of them stop at a limit, and
-- must find each state and queue without reading all jobs before it.
CREATE INDEX forge_river_job_waiting ON river_job (forge_state, queue, id)
    WHERE forge_state IN ('pending', 'scheduled', 'retryable');
DROP INDEX forge_river_job_pending;

-- Counts do not read this index any more, so that it needs no state and no queue.
DROP INDEX forge_river_job_due;
CREATE INDEX forge_river_job_due ON river_job (priority, scheduled_at, id)
    WHERE forge_state IN ('scheduled', 'retryable');

-- +goose Down
DROP INDEX forge_river_job_due;
CREATE INDEX forge_river_job_due ON river_job (priority, scheduled_at, id, forge_state, queue)
    WHERE forge_state IN ('scheduled', 'retryable');
CREATE INDEX forge_river_job_pending ON river_job (queue) WHERE forge_state = 'pending';
DROP INDEX forge_river_job_waiting;
