-- +goose Up

-- What a histogram's values were, by bucket; value is their number. Null for
-- other kinds.
ALTER TABLE forge_metrics_cluster ADD COLUMN histogram jsonb;

-- The history of the cluster's metrics: what became of each series in a window of
-- some length.
CREATE TABLE forge_metrics_rollups (
    -- The length of the window in seconds: 60, 300 or 3600.
    step      integer          NOT NULL,
    metric    text             NOT NULL,
    labels    jsonb            NOT NULL,
    -- Where the window begins.
    at        timestamptz      NOT NULL,
    -- For how many seconds of it there were sums.
    covered   double precision NOT NULL,
    -- A gauge's mean, what a counter rose by, how many values a histogram was given.
    value     double precision NOT NULL,
    least     double precision,
    greatest  double precision,
    last      double precision NOT NULL,
    histogram jsonb,
    PRIMARY KEY (step, metric, labels, at)
);
CREATE INDEX forge_metrics_rollups_at ON forge_metrics_rollups (step, at);

-- +goose Down
DROP TABLE forge_metrics_rollups;
ALTER TABLE forge_metrics_cluster DROP COLUMN histogram;
