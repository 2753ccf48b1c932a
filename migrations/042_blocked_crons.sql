-- +goose Up

-- The job of the earlier run because of which the newest tick of a cron was skipped,
-- and the first tick that was skipped since the cron last fired.
ALTER TABLE forge_crons
    ADD COLUMN blocked_by    bigint,
    ADD COLUMN blocked_since timestamptz;

-- +goose Down
ALTER TABLE forge_crons
    DROP COLUMN blocked_since,
    DROP COLUMN blocked_by;
