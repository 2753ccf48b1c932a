-- +goose Up

-- Every attempt rewrites its job's row. PostgreSQL's defaults wait until a fifth
-- of the table is dead before they vacuum and a tenth has changed before they
-- analyze: on a big table that is hours of bloat and plans made for another
-- load. The thresholds keep a small table from being vacuumed all the time.
ALTER TABLE river_job SET (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_analyze_threshold = 500
);

-- +goose Down
ALTER TABLE river_job RESET (
    autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_threshold,
    autovacuum_vacuum_insert_scale_factor,
    autovacuum_analyze_scale_factor,
    autovacuum_analyze_threshold
);
