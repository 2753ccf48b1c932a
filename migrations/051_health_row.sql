-- +goose Up

-- As before, and it makes the row of forge_health again if somebody has deleted it:
-- without one no change of the cluster's health would ever be recorded again.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forge_judge_health() RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    since  timestamptz;
    causes jsonb;
BEGIN
    SELECT degraded_at INTO since FROM forge_health FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM forge_health) THEN
            RETURN NULL; -- another transaction has locked it: an INSERT might wait for that
        END IF;
        INSERT INTO forge_health DEFAULT VALUES ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
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
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forge_judge_health() RETURNS boolean
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
