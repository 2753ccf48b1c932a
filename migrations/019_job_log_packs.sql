-- +goose Up

-- The output of attempts that are over: many chunks in one row, compressed. A
-- chunk is here or in forge_job_logs; should it be in both, this is it. The
-- stretches from first_seq to last_seq of one attempt do not overlap.
CREATE TABLE forge_job_log_packs (
    job_id     bigint      NOT NULL,
    attempt    smallint    NOT NULL,
    first_seq  integer     NOT NULL,
    last_seq   integer     NOT NULL,
    chunks     integer     NOT NULL,
    -- Of the text, before it was compressed.
    text_bytes integer     NOT NULL,
    -- Of the newest chunk: the row goes when all of it may go.
    at         timestamptz NOT NULL,
    keep_until timestamptz,
    pack       bytea       NOT NULL,
    PRIMARY KEY (job_id, attempt, first_seq)
);
-- PostgreSQL need not try to compress it once more.
ALTER TABLE forge_job_log_packs ALTER COLUMN pack SET STORAGE EXTERNAL;
CREATE INDEX forge_job_log_packs_at ON forge_job_log_packs (at) WHERE keep_until IS NULL;
CREATE INDEX forge_job_log_packs_keep_until ON forge_job_log_packs (keep_until) WHERE keep_until IS NOT NULL;

-- Rows come and go within minutes: what they leave is to be used again soon.
ALTER TABLE forge_job_logs SET (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0.2
);

-- +goose Down

-- What was packed cannot be read by an older forge, and is lost.
ALTER TABLE forge_job_logs RESET (
    autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_threshold,
    autovacuum_vacuum_insert_scale_factor
);
DROP TABLE forge_job_log_packs;
