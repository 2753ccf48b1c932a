-- +goose Up

-- Output of a job that has a retention of its own goes at that instant, whatever
-- that of all output says.
ALTER TABLE forge_job_logs ADD COLUMN keep_until timestamptz;
DROP INDEX forge_job_logs_at;
CREATE INDEX forge_job_logs_at ON forge_job_logs (at) WHERE keep_until IS NULL;
CREATE INDEX forge_job_logs_keep_until ON forge_job_logs (keep_until) WHERE keep_until IS NOT NULL;

-- +goose Down
DROP INDEX forge_job_logs_keep_until;
DROP INDEX forge_job_logs_at;
ALTER TABLE forge_job_logs DROP COLUMN keep_until;
CREATE INDEX forge_job_logs_at ON forge_job_logs (at);
