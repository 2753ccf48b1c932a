-- +goose Up

-- Every job is written three times, and each time all indexes are: the state is in
-- one of them. These two are GIN indexes over arguments and metadata that neither
-- forge nor River's workers read; without them a job costs two thirds of the
-- server's time and of the WAL.
DROP INDEX IF EXISTS river_job_args_index;
DROP INDEX IF EXISTS river_job_metadata_index;

-- Room on each page for the later versions of its rows: they touch one page then,
-- and not two.
ALTER TABLE river_job SET (fillfactor = 60);

-- +goose Down
ALTER TABLE river_job RESET (fillfactor);
CREATE INDEX river_job_args_index ON river_job USING gin (args);
CREATE INDEX river_job_metadata_index ON river_job USING gin (metadata);
