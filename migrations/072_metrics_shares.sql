-- +goose Up

-- The attempts of jobs by cron, kind, node or queue, in windows as forge_metrics_rollups has
-- them. Each window has the keys with the most attempts, and one row for all others.
CREATE TABLE forge_metrics_shares (
    -- The length of the window in seconds: 60, 300 or 3600.
    step      integer     NOT NULL,
    dimension text        NOT NULL CHECK (dimension IN ('cron', 'kind', 'node', 'queue')),
    -- The beginning of the window.
    at        timestamptz NOT NULL,
    -- The name of a cron, kind, node or queue; _other for all others.
    key       text        NOT NULL,
    -- Attempts that finished, and those of them that failed.
    attempts  bigint      NOT NULL,
    failures  bigint      NOT NULL,
    -- The numbers of attempts by how long their jobs waited and how long they took: one for
    -- each bucket of forge's histograms. Null: there are none.
    wait      integer[],
    took      integer[],
    PRIMARY KEY (step, dimension, at, key)
);
-- Sums read each element of each row: packed arrays would be copied each time.
ALTER TABLE forge_metrics_shares ALTER COLUMN wait SET STORAGE PLAIN, ALTER COLUMN took SET STORAGE PLAIN;

-- +goose Down
DROP TABLE forge_metrics_shares;
