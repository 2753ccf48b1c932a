-- +goose Up

-- Which pages of the table may have jobs of a queue. A list of a queue that has few
-- jobs or none reads those, and not all jobs that there are. It takes a five hundredth
-- of what a B-tree would, and an insert or update touches it only where a page gets its
-- first job of a queue.
CREATE INDEX forge_river_job_queue ON river_job USING brin (queue text_bloom_ops (n_distinct_per_range = 32)) WITH (pages_per_range = 32);

-- +goose Down
DROP INDEX forge_river_job_queue;
