-- +goose Up

-- The silence after which readers see the node as dead: its own cluster.dead_threshold.
-- The default is of nodes of earlier versions, which do not write it.
ALTER TABLE forge_nodes ADD COLUMN dead_after interval NOT NULL DEFAULT '1 minute';

-- The state of a node as readers see it. The stored state says what was recorded, and
-- nobody records a death while no node leads the scheduler.
CREATE FUNCTION forge_node_state(state text, last_heartbeat_at timestamptz, dead_after interval) RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN state IN ('active', 'draining') AND clock_timestamp() - last_heartbeat_at >= dead_after
                THEN 'dead' ELSE state END
$$;

-- Why the cluster is degraded, as an array of texts; null: it is not. A node was
-- recorded as dead and has not come back, or a role that a node should lead has had no
-- leader for five seconds, counted from the end of the last lease, while a node was there.
CREATE FUNCTION forge_health_causes() RETURNS jsonb
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
    WITH present AS (
        SELECT roles, started_at FROM forge_nodes WHERE state IN ('active', 'draining')
    ), found AS (
        SELECT 'node ' || node_id || ' is dead' AS cause FROM forge_nodes WHERE state = 'dead'
        UNION ALL
        SELECT 'nobody leads ' || l.role
        FROM (SELECT role, lease_until FROM forge_leaders
              UNION ALL
              SELECT role, NULL FROM unnest('{scheduler,metrics_aggregator,log_compactor}'::text[]) AS b (role)
              WHERE NOT EXISTS (SELECT FROM forge_leaders f WHERE f.role = b.role)) AS l
        WHERE (l.role IN ('scheduler', 'metrics_aggregator', 'log_compactor')
               OR EXISTS (SELECT FROM present p WHERE l.role = ANY (p.roles)))
          AND EXISTS (SELECT FROM present)
          AND greatest(l.lease_until, (SELECT min(started_at) FROM present)) < clock_timestamp() - interval '5 seconds'
    )
    SELECT jsonb_agg(cause ORDER BY cause) FROM found
$$;

-- As before, with the causes that readers see.
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
    causes := forge_health_causes();
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
DROP FUNCTION forge_health_causes;
DROP FUNCTION forge_node_state;
ALTER TABLE forge_nodes DROP COLUMN dead_after;
