-- +goose Up

-- The cluster's sums, as the ledger before them: what is there stays, in the one
-- partition that there is at first.
ALTER TABLE forge_metrics_cluster RENAME TO forge_metrics_cluster_first;
ALTER INDEX forge_metrics_cluster_pkey RENAME TO forge_metrics_cluster_first_pkey;
ALTER INDEX forge_metrics_cluster_at RENAME TO forge_metrics_cluster_first_at;

CREATE TABLE forge_metrics_cluster (LIKE forge_metrics_cluster_first INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
    PARTITION BY RANGE (at);
ALTER TABLE forge_metrics_cluster ADD PRIMARY KEY (metric, labels, at);
CREATE INDEX forge_metrics_cluster_at ON forge_metrics_cluster (at);
ALTER TABLE forge_metrics_cluster ATTACH PARTITION forge_metrics_cluster_first FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
SELECT forge_rights_as('forge_metrics_cluster', 'forge_metrics_cluster_first');
CREATE TRIGGER forge_by_ctid BEFORE DELETE ON forge_metrics_cluster FOR EACH STATEMENT
WHEN (current_query() ~* '\mctid\M') EXECUTE FUNCTION forge_refuse_ctid();

-- +goose Down
ALTER TABLE forge_metrics_cluster RENAME TO forge_metrics_cluster_parts;
CREATE TABLE forge_metrics_cluster (LIKE forge_metrics_cluster_parts INCLUDING DEFAULTS INCLUDING CONSTRAINTS);
INSERT INTO forge_metrics_cluster SELECT * FROM forge_metrics_cluster_parts;
SELECT forge_rights_as('forge_metrics_cluster', 'forge_metrics_cluster_parts');
DROP TABLE forge_metrics_cluster_parts;
ALTER TABLE forge_metrics_cluster ADD PRIMARY KEY (metric, labels, at);
CREATE INDEX forge_metrics_cluster_at ON forge_metrics_cluster (at);
