-- +goose Up

-- Whether the cluster is degraded. One row, so that each change is told once,
-- whoever notices it first.
CREATE TABLE forge_health (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    degraded_at timestamptz
);
INSERT INTO forge_health DEFAULT VALUES;

-- Looks whether the cluster is degraded: a node is dead and has not come back, or
-- a role that somebody should lead has had no leader for five seconds, counted
-- from the end of the last lease, while a node was there. Says so in forge_events
-- when that has changed. Null: another transaction is looking.
-- +goose StatementBegin
CREATE FUNCTION forge_judge_health() RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    since  timestamptz;
    causes jsonb;
BEGIN
    SELECT degraded_at INTO since FROM forge_health FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    WITH present AS (
        SELECT roles, started_at FROM forge_nodes WHERE state IN ('active', 'draining')
    ), found AS (
        SELECT 'node ' || node_id || ' is dead' AS cause FROM forge_nodes WHERE state = 'dead'
        UNION ALL
        SELECT 'nobody leads ' || l.role
        FROM forge_leaders l
        WHERE (l.role IN ('scheduler', 'metrics_aggregator', 'log_compactor')
               OR EXISTS (SELECT FROM present p WHERE l.role = ANY (p.roles)))
          AND EXISTS (SELECT FROM present)
          AND greatest(l.lease_until, (SELECT min(started_at) FROM present)) < clock_timestamp() - interval '5 seconds'
    )
    SELECT jsonb_agg(cause ORDER BY cause) INTO causes FROM found;
    IF since IS NULL AND causes IS NOT NULL THEN
        UPDATE forge_health SET degraded_at = clock_timestamp();
        INSERT INTO forge_events (type, data) VALUES ('cluster_degraded', jsonb_build_object('causes', causes));
    ELSIF since IS NOT NULL AND causes IS NULL THEN
        UPDATE forge_health SET degraded_at = NULL;
        INSERT INTO forge_events (type, data)
        VALUES ('cluster_recovered', jsonb_build_object('after_ms', round(1000 * extract(epoch FROM clock_timestamp() - since))));
    END IF;
    RETURN causes IS NOT NULL;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION forge_judge_health;
DROP TABLE forge_health;
