-- A database of the last unreleased build: pg_dump --inserts --no-owner of all its migrations
-- up to 063, with the rows of rows.sql.

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

CREATE TYPE public.river_job_state AS ENUM (
    'available',
    'cancelled',
    'completed',
    'discarded',
    'pending',
    'retryable',
    'running',
    'scheduled'
);

CREATE FUNCTION public.forge_await_session_end(class integer, object integer, slice interval) RETURNS timestamp with time zone
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM set_config('lock_timeout', ceil(1000 * extract(epoch FROM slice))::text, true);
    PERFORM pg_advisory_xact_lock_shared(class, object);
    RETURN clock_timestamp();
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
END
$$;

CREATE PROCEDURE public.forge_await_session_end(IN class integer, IN object integer, IN slice interval, IN slices integer, INOUT ended timestamp with time zone)
    LANGUAGE plpgsql
    AS $$
BEGIN
    FOR n IN 1..slices LOOP
        ended := forge_await_session_end(class, object, slice);
        COMMIT;
        EXIT WHEN ended IS NOT NULL;
    END LOOP;
END
$$;

CREATE FUNCTION public.forge_end_tenure_without_row() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO '$user', 'public'
    AS $$
BEGIN
    UPDATE forge_leader_history AS h
    SET ended_at = greatest(h.acquired_at, clock_timestamp()), end_reason = 'unknown'
    WHERE h.ended_at IS NULL AND (TG_OP = 'TRUNCATE' OR h.role = OLD.role AND h.term = OLD.term);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.forge_health_causes() RETURNS jsonb
    LANGUAGE sql
    SET search_path TO '$user', 'public'
    AS $$
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

CREATE FUNCTION public.forge_job_discarded() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO '$user', 'public'
    AS $$
DECLARE
    due timestamptz;
BEGIN
    BEGIN
        due := (NEW.metadata ->> 'forge:tick')::timestamptz;
    EXCEPTION WHEN data_exception THEN
        RETURN NULL;
    END;
    IF due IS NOT NULL THEN
        PERFORM forge_tell_failure(NEW.metadata ->> 'forge:cron', due, jsonb_build_object(
            'job_id', NEW.id, 'job', NEW.kind, 'attempts', NEW.attempt,
            'error', left(coalesce(NEW.errors[array_upper(NEW.errors, 1)] ->> 'error', ''), 2000)));
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION public.forge_judge_health() RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO '$user', 'public'
    AS $$
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

CREATE FUNCTION public.forge_leader(of_role text) RETURNS TABLE(node_id text, term bigint, lease_until timestamp with time zone, api_url text)
    LANGUAGE sql STABLE
    SET search_path TO '$user', 'public'
    AS $$
    SELECT l.node_id, l.term, l.lease_until, l.api_url
    FROM forge_leaders l
    WHERE l.role = of_role AND l.node_id IS NOT NULL AND l.lease_until > clock_timestamp()
$$;

CREATE FUNCTION public.forge_lock_offset() RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$SELECT 0::bigint$$;

CREATE FUNCTION public.forge_node_state(state text, last_heartbeat_at timestamp with time zone, dead_after interval) RETURNS text
    LANGUAGE sql
    AS $$
    SELECT CASE WHEN state IN ('active', 'draining') AND clock_timestamp() - last_heartbeat_at >= dead_after
                THEN 'dead' ELSE state END
$$;

CREATE FUNCTION public.forge_refuse_ctid() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'rows of % cannot be deleted by ctid: it has partitions', TG_TABLE_NAME
        USING ERRCODE = 'feature_not_supported', HINT = 'Delete by the key, or use the forge that migrated the schema.';
END
$$;

CREATE FUNCTION public.forge_rights_as(here regclass, there regclass) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    known record;
BEGIN
    FOR known IN
        SELECT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee,
               a.privilege_type, a.is_grantable
        FROM pg_class c, aclexplode(c.relacl) AS a
        WHERE c.oid = there
    LOOP
        EXECUTE format('GRANT %s ON %s TO %s%s', known.privilege_type, here, known.grantee,
                       CASE WHEN known.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
    END LOOP;
    EXECUTE format('ALTER TABLE %s OWNER TO %I', here,
                   (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = there));
END
$$;

CREATE FUNCTION public.forge_role_bound_transaction(lease interval) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    most bigint := ceil(1000 * extract(epoch FROM lease));
    now bigint := (SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout');
BEGIN
    IF now = 0 OR now > most THEN
        PERFORM set_config('idle_in_transaction_session_timeout', most::text, true);
    END IF;
END
$$;

CREATE FUNCTION public.forge_role_campaign(of_role text, of_node text, lease interval DEFAULT '00:00:30'::interval) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET lock_timeout TO '200ms'
    SET search_path TO 'public', 'pg_temp'
    AS $_$
DECLARE
    old forge_leaders;
    new_term bigint;
    at timestamptz;
    leaderless interval;
BEGIN
    IF of_role IS NULL OR of_role !~ '^[a-z][a-z0-9_]{0,62}$' THEN
        RAISE EXCEPTION 'role %: want a lower-case letter, then at most 62 letters, digits or _', quote_nullable(left(of_role, 80))
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF of_role IN ('scheduler', 'metrics_aggregator', 'log_compactor', 'worker') THEN
        RAISE EXCEPTION 'role % is forge''s own; want another name', quote_literal(of_role)
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF of_node IS NULL OR of_node !~ '^[!-~]{1,63}$' THEN
        RAISE EXCEPTION 'node %: want 1 to 63 printable characters without spaces', quote_nullable(left(of_node, 80))
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF lease IS NULL OR lease < interval '1 second' OR lease > interval '1 hour' THEN
        RAISE EXCEPTION 'lease %: want 1 second to 1 hour', quote_nullable(lease)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;

    IF NOT EXISTS (SELECT FROM forge_leaders l WHERE l.role = of_role) THEN
        IF (SELECT count(*) FROM forge_leaders) >= 200 THEN -- each is a card on a page
            RAISE EXCEPTION 'this cluster has 200 roles, no new one is made for %', quote_literal(of_role)
                USING ERRCODE = 'program_limit_exceeded', HINT = 'Use one role for what one program does at a time.';
        END IF;
        INSERT INTO forge_leaders (role) VALUES (of_role) ON CONFLICT DO NOTHING;
    END IF;
    -- Candidates that have no chance lock nothing: the leader renews the same row.
    PERFORM FROM forge_leaders l WHERE l.role = of_role AND l.node_id IS NOT NULL AND l.lease_until > clock_timestamp();
    IF FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO old FROM forge_leaders l WHERE l.role = of_role FOR UPDATE;
    IF NOT FOUND OR old.node_id IS NOT NULL AND old.lease_until > clock_timestamp() THEN
        RETURN NULL;
    END IF;
    PERFORM FROM forge_leader_requests r
    WHERE r.role = of_role AND r.reserved_until > clock_timestamp()
      AND coalesce(r.target <> of_node,
                   of_node = (SELECT h.node_id FROM forge_leader_history h WHERE h.role = r.role AND h.term = r.term));
    IF FOUND THEN
        RETURN NULL;
    END IF;

    PERFORM forge_role_bound_transaction(lease);
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN -- a term that is lost again could be given twice
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    WITH closed AS (
        UPDATE forge_leader_history h
        SET ended_at = greatest(h.acquired_at, old.renewed_at),
            end_reason = CASE
                WHEN old.node_id IS NULL OR old.term <> h.term THEN 'unknown'
                WHEN pg_postmaster_start_time() > old.renewed_at THEN 'database_lost'
                ELSE 'lease_expired' END
        WHERE h.role = of_role AND h.ended_at IS NULL
        RETURNING h.node_id, h.term, h.end_reason
    )
    INSERT INTO forge_events (type, node_id, role, term, data)
    SELECT 'leader_lost', c.node_id, of_role, c.term, jsonb_build_object('reason', c.end_reason) FROM closed c;

    SELECT 1 + greatest(old.term, coalesce(max(h.term), 0)), clock_timestamp(), clock_timestamp() - max(h.ended_at)
    INTO new_term, at, leaderless
    FROM forge_leader_history h
    WHERE h.role = of_role;
    UPDATE forge_leaders l
    SET node_id = of_node, incarnation = 'sql:' || new_term, backend_pid = NULL, api_url = '', metadata = '{}',
        term = new_term, acquired_at = at, renewed_at = at, lease_until = at + lease,
        timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
    WHERE l.role = of_role
    RETURNING * INTO old;
    INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, timeline, gap)
    VALUES (of_role, new_term, of_node, old.incarnation, at, old.timeline, leaderless);
    INSERT INTO forge_events (type, node_id, role, term, data) VALUES
        ('election_started', of_node, of_role, new_term, '{}'),
        ('leader_elected', of_node, of_role, new_term, jsonb_strip_nulls(jsonb_build_object('gap_ms', round(1000 * extract(epoch FROM leaderless)))));
    PERFORM pg_notify(current_schema() || '.forge_leader', of_role);
    RETURN new_term;
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
END
$_$;

CREATE FUNCTION public.forge_role_fence(of_role text, of_term bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    lease interval;
BEGIN
    SELECT l.lease_until - l.renewed_at INTO lease FROM forge_leaders l
    WHERE l.role = of_role AND l.term = of_term AND starts_with(l.incarnation, 'sql:')
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'term % of role % is over', coalesce(of_term::text, 'NULL'), quote_nullable(left(of_role, 80)) USING ERRCODE = 'FG001';
    END IF;
    PERFORM forge_role_bound_transaction(lease);
END
$$;

CREATE FUNCTION public.forge_role_renew(of_role text, of_term bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    UPDATE forge_leaders l
    SET renewed_at = now.at, lease_until = now.at + (l.lease_until - l.renewed_at)
    FROM (SELECT clock_timestamp() AS at) now
    WHERE l.role = of_role AND l.term = of_term AND starts_with(l.incarnation, 'sql:') AND l.lease_until > now.at
      AND NOT EXISTS (SELECT FROM forge_leader_requests r WHERE r.role = of_role AND r.term = of_term);
    RETURN FOUND;
END
$$;

CREATE FUNCTION public.forge_role_step_down(of_role text, of_term bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    old forge_leaders;
    request forge_leader_requests;
    reason text;
    at timestamptz;
BEGIN
    SELECT * INTO old FROM forge_leaders l
    WHERE l.role = of_role AND l.term = of_term AND starts_with(l.incarnation, 'sql:')
    FOR NO KEY UPDATE; -- which waits for no fenced transaction
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE forge_leader_requests r
    SET reserved_until = clock_timestamp() + (old.lease_until - old.renewed_at) / 2
    WHERE r.role = of_role AND r.term = of_term
    RETURNING * INTO request;
    reason := CASE WHEN request.target IS NULL THEN 'stepped_down' ELSE 'transferred' END;
    at := least(clock_timestamp(), old.lease_until); -- it led no longer than that
    UPDATE forge_leaders l
    SET node_id = NULL, incarnation = NULL, api_url = '', metadata = '{}', renewed_at = at, lease_until = at
    WHERE l.role = of_role;
    UPDATE forge_leader_history h
    SET ended_at = at, end_reason = reason
    WHERE h.role = of_role AND h.term = of_term AND h.ended_at IS NULL;
    INSERT INTO forge_events (type, node_id, role, term, data)
    VALUES ('leader_lost', old.node_id, of_role, of_term, jsonb_build_object('reason', reason));
    PERFORM pg_notify(current_schema() || '.forge_leader', of_role);
    RETURN true;
END
$$;

CREATE FUNCTION public.forge_tell_failure(of_cron text, of_tick timestamp with time zone, of_facts jsonb) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO '$user', 'public'
    AS $$
BEGIN
    INSERT INTO forge_notifications (cron, tick, target, facts)
    SELECT c.name, of_tick, t.target, of_facts
    FROM forge_crons c
    CROSS JOIN LATERAL jsonb_array_elements_text(
        CASE jsonb_typeof(c.spec -> 'on_failure') WHEN 'array' THEN c.spec -> 'on_failure' ELSE '[]' END) AS t (target)
    WHERE c.name = of_cron
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM pg_notify(current_schema() || '.forge_failure', '');
    END IF;
END
$$;

CREATE FUNCTION public.forge_term_is_current(of_role text, of_term bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO '$user', 'public'
    AS $$
BEGIN
    PERFORM FROM forge_leaders l
    WHERE l.role = of_role AND l.term = of_term AND l.node_id IS NOT NULL
    FOR KEY SHARE;
    RETURN FOUND;
END
$$;

CREATE FUNCTION public.forge_tick_failed() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO '$user', 'public'
    AS $$
BEGIN
    PERFORM forge_tell_failure(NEW.cron, NEW.tick, jsonb_build_object('error', left(NEW.reason, 2000)));
    RETURN NULL;
END
$$;

CREATE FUNCTION public.river_job_state_in_bitmask(bitmask bit, state public.river_job_state) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE state
        WHEN 'available' THEN get_bit(bitmask, 7)
        WHEN 'cancelled' THEN get_bit(bitmask, 6)
        WHEN 'completed' THEN get_bit(bitmask, 5)
        WHEN 'discarded' THEN get_bit(bitmask, 4)
        WHEN 'pending'   THEN get_bit(bitmask, 3)
        WHEN 'retryable' THEN get_bit(bitmask, 2)
        WHEN 'running'   THEN get_bit(bitmask, 1)
        WHEN 'scheduled' THEN get_bit(bitmask, 0)
        ELSE 0
    END = 1;
$$;

SET default_tablespace = '';

SET default_table_access_method = heap;

CREATE TABLE public.forge_alerts (
    id bigint NOT NULL,
    alert text NOT NULL,
    labels jsonb NOT NULL,
    annotations jsonb DEFAULT '{}'::jsonb NOT NULL,
    severity text DEFAULT ''::text NOT NULL,
    notify text[] DEFAULT '{}'::text[] NOT NULL,
    state text NOT NULL,
    value double precision NOT NULL,
    active_at timestamp with time zone NOT NULL,
    fired_at timestamp with time zone,
    resolved_at timestamp with time zone,
    term bigint NOT NULL,
    muted boolean DEFAULT false NOT NULL,
    kept_since timestamp with time zone,
    CONSTRAINT forge_alerts_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'firing'::text, 'resolved'::text])))
);

ALTER TABLE public.forge_alerts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.forge_alerts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.forge_audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    actor text NOT NULL,
    source text NOT NULL,
    action text NOT NULL,
    object text NOT NULL,
    outcome text NOT NULL,
    detail text DEFAULT ''::text NOT NULL,
    CONSTRAINT forge_audit_outcome_check CHECK ((outcome = ANY (ARRAY['begun'::text, 'done'::text, 'refused'::text, 'failed'::text])))
);

ALTER TABLE public.forge_audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.forge_audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.forge_compactions (
    id bigint NOT NULL,
    term bigint NOT NULL,
    node_id text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    next_at timestamp with time zone NOT NULL,
    removed jsonb DEFAULT '{}'::jsonb NOT NULL,
    failed jsonb DEFAULT '{}'::jsonb NOT NULL,
    chunks bigint DEFAULT 0 NOT NULL,
    packs bigint DEFAULT 0 NOT NULL,
    text_bytes bigint DEFAULT 0 NOT NULL,
    pack_bytes bigint DEFAULT 0 NOT NULL
);

ALTER TABLE public.forge_compactions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.forge_compactions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.forge_config (
    hash text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    applied_by text NOT NULL,
    body jsonb NOT NULL,
    cluster text DEFAULT ''::text NOT NULL
);

CREATE TABLE public.forge_cron_ticks (
    cron text NOT NULL,
    tick timestamp with time zone NOT NULL,
    verdict text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    job_id bigint,
    term bigint NOT NULL,
    node_id text NOT NULL,
    recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    lateness_ms double precision DEFAULT 0 NOT NULL,
    last_tick timestamp with time zone,
    tick_count bigint DEFAULT 1 NOT NULL,
    CONSTRAINT forge_cron_ticks_tick_count_check CHECK ((tick_count >= 1)),
    CONSTRAINT forge_cron_ticks_verdict_check CHECK ((verdict = ANY (ARRAY['fired'::text, 'caught_up'::text, 'queued'::text, 'skipped_overlap'::text, 'skipped_window'::text, 'skipped_limit'::text, 'skipped_dst'::text, 'skipped_paused'::text, 'skipped_excluded'::text, 'replaced'::text, 'failed'::text, 'triggered'::text, 'backfilled'::text])))
)
PARTITION BY RANGE (tick);

CREATE TABLE public.forge_cron_ticks_first (
    cron text NOT NULL,
    tick timestamp with time zone NOT NULL,
    verdict text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    job_id bigint,
    term bigint NOT NULL,
    node_id text NOT NULL,
    recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    lateness_ms double precision DEFAULT 0 NOT NULL,
    last_tick timestamp with time zone,
    tick_count bigint DEFAULT 1 NOT NULL,
    CONSTRAINT forge_cron_ticks_tick_count_check CHECK ((tick_count >= 1)),
    CONSTRAINT forge_cron_ticks_verdict_check CHECK ((verdict = ANY (ARRAY['fired'::text, 'caught_up'::text, 'queued'::text, 'skipped_overlap'::text, 'skipped_window'::text, 'skipped_limit'::text, 'skipped_dst'::text, 'skipped_paused'::text, 'skipped_excluded'::text, 'replaced'::text, 'failed'::text, 'triggered'::text, 'backfilled'::text])))
);

CREATE TABLE public.forge_crons (
    name text NOT NULL,
    spec jsonb NOT NULL,
    spec_hash text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    removed_at timestamp with time zone,
    paused_at timestamp with time zone,
    watermark timestamp with time zone NOT NULL,
    next_tick timestamp with time zone,
    blocked_by bigint,
    blocked_since timestamp with time zone,
    CONSTRAINT forge_crons_name_check CHECK (((char_length(name) >= 1) AND (char_length(name) <= 100)))
)
WITH (fillfactor='70');

CREATE TABLE public.forge_enqueued (
    kind text NOT NULL,
    jobs bigint NOT NULL
);

CREATE TABLE public.forge_events (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    type text NOT NULL,
    node_id text,
    role text,
    term bigint,
    data jsonb DEFAULT '{}'::jsonb NOT NULL
);

ALTER TABLE public.forge_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.forge_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.forge_health (
    only_row boolean DEFAULT true NOT NULL,
    degraded_at timestamp with time zone,
    CONSTRAINT forge_health_only_row_check CHECK (only_row)
);

CREATE TABLE public.forge_idempotency_keys (
    caller text NOT NULL,
    key text NOT NULL,
    digest bytea NOT NULL,
    status integer DEFAULT 0 NOT NULL,
    location text DEFAULT ''::text NOT NULL,
    body bytea DEFAULT '\x'::bytea NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT forge_idempotency_keys_digest_check CHECK ((octet_length(digest) = 32))
);

CREATE TABLE public.forge_job_log_packs (
    job_id bigint NOT NULL,
    attempt smallint NOT NULL,
    first_seq integer NOT NULL,
    last_seq integer NOT NULL,
    chunks integer NOT NULL,
    text_bytes integer NOT NULL,
    at timestamp with time zone NOT NULL,
    keep_until timestamp with time zone,
    pack bytea NOT NULL
);
ALTER TABLE ONLY public.forge_job_log_packs ALTER COLUMN pack SET STORAGE EXTERNAL;

CREATE TABLE public.forge_job_logs (
    job_id bigint NOT NULL,
    attempt smallint NOT NULL,
    seq integer NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    stream text NOT NULL,
    chunk text NOT NULL,
    keep_until timestamp with time zone,
    CONSTRAINT forge_job_logs_stream_check CHECK ((stream = ANY (ARRAY['stdout'::text, 'stderr'::text, 'system'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='10000', autovacuum_vacuum_insert_scale_factor='0.2');

CREATE TABLE public.forge_leader_history (
    role text NOT NULL,
    term bigint NOT NULL,
    node_id text NOT NULL,
    incarnation text NOT NULL,
    acquired_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    end_reason text,
    gap interval,
    timeline text DEFAULT ''::text NOT NULL,
    lock_id bigint,
    CONSTRAINT forge_leader_history_end_reason_check CHECK ((end_reason = ANY (ARRAY['resigned'::text, 'stepped_down'::text, 'transferred'::text, 'crashed'::text, 'lease_expired'::text, 'evicted'::text, 'database_lost'::text, 'unknown'::text])))
);

CREATE TABLE public.forge_leader_requests (
    role text NOT NULL,
    term bigint NOT NULL,
    target text,
    requested_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    reserved_until timestamp with time zone,
    CONSTRAINT forge_leader_requests_role_check CHECK (((char_length(role) >= 1) AND (char_length(role) <= 63)))
);

CREATE TABLE public.forge_leaders (
    role text NOT NULL,
    node_id text,
    incarnation text,
    term bigint DEFAULT 0 NOT NULL,
    acquired_at timestamp with time zone,
    renewed_at timestamp with time zone,
    lease_until timestamp with time zone,
    backend_pid integer,
    api_url text DEFAULT ''::text NOT NULL,
    timeline text DEFAULT ''::text NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT forge_leaders_role_check CHECK (((char_length(role) >= 1) AND (char_length(role) <= 63))),
    CONSTRAINT forge_leaders_term_check CHECK ((term >= 0))
)
WITH (fillfactor='50');

CREATE TABLE public.forge_limits (
    scope text NOT NULL,
    name text NOT NULL,
    most integer NOT NULL,
    CONSTRAINT forge_limits_most_check CHECK ((most > 0)),
    CONSTRAINT forge_limits_scope_check CHECK ((scope = ANY (ARRAY['queue'::text, 'job'::text])))
)
WITH (fillfactor='50');

CREATE UNLOGGED TABLE public.forge_mail (
    id bigint NOT NULL,
    channel text NOT NULL,
    payload text NOT NULL,
    sent_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

ALTER TABLE public.forge_mail ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.forge_mail_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.forge_metrics_cluster (
    metric text NOT NULL,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    at timestamp with time zone NOT NULL,
    value double precision NOT NULL,
    term bigint NOT NULL,
    histogram jsonb
)
PARTITION BY RANGE (at);

CREATE TABLE public.forge_metrics_cluster_first (
    metric text NOT NULL,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    at timestamp with time zone NOT NULL,
    value double precision NOT NULL,
    term bigint NOT NULL,
    histogram jsonb
);

CREATE TABLE public.forge_metrics_nodes (
    node_id text NOT NULL,
    incarnation text NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    samples jsonb NOT NULL,
    every interval DEFAULT '00:00:15'::interval NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE public.forge_metrics_rollups (
    step integer NOT NULL,
    metric text NOT NULL,
    labels jsonb NOT NULL,
    at timestamp with time zone NOT NULL,
    covered double precision NOT NULL,
    value double precision NOT NULL,
    "least" double precision,
    "greatest" double precision,
    last double precision NOT NULL,
    histogram jsonb
);

CREATE TABLE public.forge_migrations (
    id integer NOT NULL,
    version_id bigint NOT NULL,
    is_applied boolean NOT NULL,
    tstamp timestamp without time zone DEFAULT now() NOT NULL
);

ALTER TABLE public.forge_migrations ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.forge_migrations_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.forge_nodes (
    node_id text NOT NULL,
    incarnation text NOT NULL,
    hostname text DEFAULT ''::text NOT NULL,
    pid integer DEFAULT 0 NOT NULL,
    version text DEFAULT ''::text NOT NULL,
    api_url text DEFAULT ''::text NOT NULL,
    state text DEFAULT 'active'::text NOT NULL,
    roles text[] DEFAULT '{}'::text[] NOT NULL,
    capabilities text[] DEFAULT '{}'::text[] NOT NULL,
    tags jsonb DEFAULT '{}'::jsonb NOT NULL,
    kinds text[] DEFAULT '{}'::text[] NOT NULL,
    queues jsonb DEFAULT '{}'::jsonb NOT NULL,
    slots integer DEFAULT 0 NOT NULL,
    running integer DEFAULT 0 NOT NULL,
    config_hash text DEFAULT ''::text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    last_heartbeat_at timestamp with time zone DEFAULT now() NOT NULL,
    fenced_at timestamp with time zone,
    definitions jsonb DEFAULT '{}'::jsonb NOT NULL,
    config_error text DEFAULT ''::text NOT NULL,
    config_restart text[] DEFAULT '{}'::text[] NOT NULL,
    tzdata text DEFAULT ''::text NOT NULL,
    config_waiting text DEFAULT ''::text NOT NULL,
    dead_after interval DEFAULT '00:01:00'::interval NOT NULL,
    CONSTRAINT forge_nodes_incarnation_check CHECK ((incarnation ~ '^[0-9a-f]{16}$'::text)),
    CONSTRAINT forge_nodes_node_id_check CHECK (((char_length(node_id) >= 1) AND (char_length(node_id) <= 63))),
    CONSTRAINT forge_nodes_state_check CHECK ((state = ANY (ARRAY['active'::text, 'draining'::text, 'left'::text, 'dead'::text])))
)
WITH (fillfactor='50');

CREATE TABLE public.forge_notifications (
    id bigint NOT NULL,
    cron text,
    tick timestamp with time zone,
    target text NOT NULL,
    facts jsonb DEFAULT '{}'::jsonb NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    next_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    done_at timestamp with time zone,
    error text DEFAULT ''::text NOT NULL,
    node_id text DEFAULT ''::text NOT NULL,
    term bigint DEFAULT 0 NOT NULL,
    alert text,
    sending boolean DEFAULT false NOT NULL,
    CONSTRAINT forge_notifications_check CHECK ((((alert IS NULL) = (cron IS NOT NULL)) AND ((alert IS NULL) = (tick IS NOT NULL)))),
    CONSTRAINT forge_notifications_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'delivered'::text, 'failed'::text, 'superseded'::text])))
);

ALTER TABLE public.forge_notifications ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.forge_notifications_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.forge_sessions (
    hash bytea NOT NULL,
    token_id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT forge_sessions_hash_check CHECK ((octet_length(hash) = 32))
);

CREATE TABLE public.forge_silences (
    alert text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    until timestamp with time zone NOT NULL,
    created_by text NOT NULL,
    reason text DEFAULT ''::text NOT NULL
);

CREATE TABLE public.forge_tokens (
    id bigint NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    scope text NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    revoked_by text,
    CONSTRAINT forge_tokens_hash_check CHECK ((octet_length(hash) = 32)),
    CONSTRAINT forge_tokens_scope_check CHECK ((scope = ANY (ARRAY['viewer'::text, 'operator'::text, 'admin'::text])))
);

ALTER TABLE public.forge_tokens ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.forge_tokens_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.river_job (
    id bigint NOT NULL,
    state public.river_job_state DEFAULT 'available'::public.river_job_state NOT NULL,
    attempt smallint DEFAULT 0 NOT NULL,
    max_attempts smallint DEFAULT 25 NOT NULL,
    attempted_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    finalized_at timestamp with time zone,
    scheduled_at timestamp with time zone DEFAULT now() NOT NULL,
    priority smallint DEFAULT 1 NOT NULL,
    args jsonb NOT NULL,
    attempted_by text[],
    errors jsonb[],
    kind text NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    queue text DEFAULT 'default'::text NOT NULL,
    tags character varying(255)[] DEFAULT '{}'::character varying[] NOT NULL,
    unique_key bytea,
    unique_states bit(8),
    CONSTRAINT finalized_or_finalized_at_null CHECK ((((finalized_at IS NULL) AND (state <> ALL (ARRAY['cancelled'::public.river_job_state, 'completed'::public.river_job_state, 'discarded'::public.river_job_state]))) OR ((finalized_at IS NOT NULL) AND (state = ANY (ARRAY['cancelled'::public.river_job_state, 'completed'::public.river_job_state, 'discarded'::public.river_job_state]))))),
    CONSTRAINT kind_length CHECK (((char_length(kind) > 0) AND (char_length(kind) < 128))),
    CONSTRAINT max_attempts_is_positive CHECK ((max_attempts > 0)),
    CONSTRAINT priority_in_range CHECK (((priority >= 1) AND (priority <= 4))),
    CONSTRAINT queue_length CHECK (((char_length(queue) > 0) AND (char_length(queue) < 128)))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_insert_scale_factor='0.05', autovacuum_analyze_scale_factor='0.02', autovacuum_analyze_threshold='500', fillfactor='60');

CREATE SEQUENCE public.river_job_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE public.river_job_id_seq OWNED BY public.river_job.id;

CREATE UNLOGGED TABLE public.river_leader (
    elected_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    leader_id text NOT NULL,
    name text DEFAULT 'default'::text NOT NULL,
    CONSTRAINT leader_id_length CHECK (((char_length(leader_id) > 0) AND (char_length(leader_id) < 128))),
    CONSTRAINT name_length CHECK ((name = 'default'::text))
);

CREATE TABLE public.river_migration (
    line text NOT NULL,
    version bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT line_length CHECK (((char_length(line) > 0) AND (char_length(line) < 128))),
    CONSTRAINT version_gte_1 CHECK ((version >= 1))
);

CREATE TABLE public.river_notification (
    id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    payload text NOT NULL,
    topic text NOT NULL,
    CONSTRAINT topic_length CHECK (((length(topic) > 0) AND (length(topic) < 128)))
);

CREATE SEQUENCE public.river_notification_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE public.river_notification_id_seq OWNED BY public.river_notification.id;

CREATE TABLE public.river_queue (
    name text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    paused_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP NOT NULL
);

ALTER TABLE ONLY public.forge_cron_ticks ATTACH PARTITION public.forge_cron_ticks_first FOR VALUES FROM (MINVALUE) TO (MAXVALUE);

ALTER TABLE ONLY public.forge_metrics_cluster ATTACH PARTITION public.forge_metrics_cluster_first FOR VALUES FROM (MINVALUE) TO (MAXVALUE);

ALTER TABLE ONLY public.river_job ALTER COLUMN id SET DEFAULT nextval('public.river_job_id_seq'::regclass);

ALTER TABLE ONLY public.river_notification ALTER COLUMN id SET DEFAULT nextval('public.river_notification_id_seq'::regclass);

INSERT INTO public.forge_alerts OVERRIDING SYSTEM VALUE VALUES (1, 'late', '{}', '{}', '', '{}', 'firing', 1, '2026-11-25 04:49:27.391369+00', NULL, NULL, 7, false, NULL);

INSERT INTO public.forge_audit OVERRIDING SYSTEM VALUE VALUES (1, '2026-11-25 04:49:27.392845+00', 'me', 'cli', 'cron.pause', 'nightly', 'done', '');

INSERT INTO public.forge_compactions OVERRIDING SYSTEM VALUE VALUES (1, 7, 'a', '2026-11-25 04:49:27.391717+00', '2026-11-25 04:49:27.391717+00', '2026-11-25 04:49:27.391717+00', '{"events": 3}', '{}', 0, 0, 0, 0);

INSERT INTO public.forge_config VALUES ('abc', '2026-11-25 04:49:27.386041+00', 'a', '{"crons": []}', '');

INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-24 04:49:27.386361+00', 'fired', '', 1, 7, 'a', '2026-11-25 04:49:27.386654+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-23 04:49:27.386361+00', 'fired', '', 2, 7, 'a', '2026-11-25 04:49:27.386937+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-22 04:49:27.386361+00', 'fired', '', 3, 7, 'a', '2026-11-25 04:49:27.386943+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-21 04:49:27.386361+00', 'fired', '', 4, 7, 'a', '2026-11-25 04:49:27.386946+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-20 04:49:27.386361+00', 'fired', '', 5, 7, 'a', '2026-11-25 04:49:27.386948+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-19 04:49:27.386361+00', 'fired', '', 6, 7, 'a', '2026-11-25 04:49:27.386951+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-18 04:49:27.386361+00', 'fired', '', 7, 7, 'a', '2026-11-25 04:49:27.386953+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-17 04:49:27.386361+00', 'fired', '', 8, 7, 'a', '2026-11-25 04:49:27.386956+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-16 04:49:27.386361+00', 'fired', '', 9, 7, 'a', '2026-11-25 04:49:27.386958+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-15 04:49:27.386361+00', 'fired', '', 10, 7, 'a', '2026-11-25 04:49:27.38696+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-14 04:49:27.386361+00', 'fired', '', 11, 7, 'a', '2026-11-25 04:49:27.386963+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-13 04:49:27.386361+00', 'fired', '', 12, 7, 'a', '2026-11-25 04:49:27.386965+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-12 04:49:27.386361+00', 'fired', '', 13, 7, 'a', '2026-11-25 04:49:27.386967+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-11 04:49:27.386361+00', 'fired', '', 14, 7, 'a', '2026-11-25 04:49:27.386969+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-10 04:49:27.386361+00', 'fired', '', 15, 7, 'a', '2026-11-25 04:49:27.386972+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-09 04:49:27.386361+00', 'fired', '', 16, 7, 'a', '2026-11-25 04:49:27.386974+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-08 04:49:27.386361+00', 'fired', '', 17, 7, 'a', '2026-11-25 04:49:27.38698+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-07 04:49:27.386361+00', 'fired', '', 18, 7, 'a', '2026-11-25 04:49:27.386983+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-06 04:49:27.386361+00', 'fired', '', 19, 7, 'a', '2026-11-25 04:49:27.386985+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-05 04:49:27.386361+00', 'fired', '', 20, 7, 'a', '2026-11-25 04:49:27.386988+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-04 04:49:27.386361+00', 'fired', '', 21, 7, 'a', '2026-11-25 04:49:27.38699+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-03 04:49:27.386361+00', 'fired', '', 22, 7, 'a', '2026-11-25 04:49:27.386993+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-02 04:49:27.386361+00', 'fired', '', 23, 7, 'a', '2026-11-25 04:49:27.386995+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-11-01 04:49:27.386361+00', 'fired', '', 24, 7, 'a', '2026-11-25 04:49:27.386997+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-31 04:49:27.386361+00', 'fired', '', 25, 7, 'a', '2026-11-25 04:49:27.387+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-30 04:49:27.386361+00', 'fired', '', 26, 7, 'a', '2026-11-25 04:49:27.387002+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-29 04:49:27.386361+00', 'fired', '', 27, 7, 'a', '2026-11-25 04:49:27.387006+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-28 04:49:27.386361+00', 'fired', '', 28, 7, 'a', '2026-11-25 04:49:27.38701+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-27 04:49:27.386361+00', 'fired', '', 29, 7, 'a', '2026-11-25 04:49:27.387012+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-26 04:49:27.386361+00', 'fired', '', 30, 7, 'a', '2026-11-25 04:49:27.387015+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-25 04:49:27.386361+00', 'fired', '', 31, 7, 'a', '2026-11-25 04:49:27.387017+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-24 04:49:27.386361+00', 'fired', '', 32, 7, 'a', '2026-11-25 04:49:27.38702+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-23 04:49:27.386361+00', 'fired', '', 33, 7, 'a', '2026-11-25 04:49:27.387022+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-22 04:49:27.386361+00', 'fired', '', 34, 7, 'a', '2026-11-25 04:49:27.387025+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-21 04:49:27.386361+00', 'fired', '', 35, 7, 'a', '2026-11-25 04:49:27.387027+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-20 04:49:27.386361+00', 'fired', '', 36, 7, 'a', '2026-11-25 04:49:27.38703+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-19 04:49:27.386361+00', 'fired', '', 37, 7, 'a', '2026-11-25 04:49:27.387034+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-18 04:49:27.386361+00', 'fired', '', 38, 7, 'a', '2026-11-25 04:49:27.387038+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-17 04:49:27.386361+00', 'fired', '', 39, 7, 'a', '2026-11-25 04:49:27.387041+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-16 04:49:27.386361+00', 'fired', '', 40, 7, 'a', '2026-11-25 04:49:27.387043+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-15 04:49:27.386361+00', 'fired', '', 41, 7, 'a', '2026-11-25 04:49:27.387045+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-14 04:49:27.386361+00', 'fired', '', 42, 7, 'a', '2026-11-25 04:49:27.387048+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-13 04:49:27.386361+00', 'fired', '', 43, 7, 'a', '2026-11-25 04:49:27.38705+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-12 04:49:27.386361+00', 'fired', '', 44, 7, 'a', '2026-11-25 04:49:27.387053+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-11 04:49:27.386361+00', 'fired', '', 45, 7, 'a', '2026-11-25 04:49:27.387056+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-10 04:49:27.386361+00', 'fired', '', 46, 7, 'a', '2026-11-25 04:49:27.387058+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-09 04:49:27.386361+00', 'fired', '', 47, 7, 'a', '2026-11-25 04:49:27.387062+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-08 04:49:27.386361+00', 'fired', '', 48, 7, 'a', '2026-11-25 04:49:27.387065+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-07 04:49:27.386361+00', 'fired', '', 49, 7, 'a', '2026-11-25 04:49:27.387068+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('nightly', '2026-10-06 04:49:27.386361+00', 'fired', '', 50, 7, 'a', '2026-11-25 04:49:27.38707+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('other', '2026-11-25 01:49:27.387126+00', 'skipped_paused', '', NULL, 7, 'a', '2026-11-25 04:49:27.38719+00', 0, '2026-11-25 03:49:27.387126+00', 120);
INSERT INTO public.forge_cron_ticks_first VALUES ('other', '2026-11-25 03:59:27.387126+00', 'failed', '', NULL, 7, 'a', '2026-11-25 04:49:27.387244+00', 0, NULL, 1);
INSERT INTO public.forge_cron_ticks_first VALUES ('other', '2026-11-25 04:49:27.387126+00', 'queued', '', NULL, 7, 'a', '2026-11-25 04:49:27.387249+00', 0, NULL, 1);

INSERT INTO public.forge_crons VALUES ('nightly', '{"schedule": "0 2 * * *"}', 'h', '2026-11-25 04:49:27.386264+00', '2026-11-25 04:49:27.386264+00', NULL, NULL, '2026-11-25 04:49:27.386176+00', '2026-11-26 04:49:27.386176+00', NULL, NULL);
INSERT INTO public.forge_crons VALUES ('other', '{"on_failure": ["log"]}', 'h', '2026-11-25 04:49:27.386331+00', '2026-11-25 04:49:27.386331+00', NULL, NULL, '2026-11-25 04:49:27.386176+00', NULL, NULL, NULL);

INSERT INTO public.forge_enqueued VALUES ('report', 3);

INSERT INTO public.forge_events OVERRIDING SYSTEM VALUE VALUES (1, '2026-11-25 04:49:27.385839+00', 'node_joined', 'a', NULL, NULL, '{"pid": 1}');

INSERT INTO public.forge_health VALUES (true, NULL);

INSERT INTO public.forge_idempotency_keys VALUES ('me', 'k', '\x8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a', 201, '/x', '\x', '2026-11-25 04:49:27.393061+00');

INSERT INTO public.forge_job_log_packs VALUES (52, 1, 1, 2, 2, 10, '2026-11-25 04:49:27.391568+00', NULL, '\x0102');

INSERT INTO public.forge_job_logs VALUES (51, 1, 1, '2026-11-25 04:49:27.389944+00', 'stdout', 'hello', NULL);
INSERT INTO public.forge_job_logs VALUES (51, 1, 2, '2026-11-25 04:49:27.390108+00', 'stderr', 'oh', NULL);

INSERT INTO public.forge_leader_history VALUES ('scheduler', 6, 'a', '0123456789abcdef', '2026-11-25 04:49:27.385328+00', '2026-11-25 04:49:27.385328+00', 'crashed', '00:00:03', '', NULL);
INSERT INTO public.forge_leader_history VALUES ('scheduler', 7, 'b', 'fedcba9876543210', '2026-11-25 04:49:27.385328+00', '2026-11-25 04:49:27.385328+00', 'resigned', '00:00:00', '', NULL);

INSERT INTO public.forge_leader_requests VALUES ('scheduler', 7, 'a', '2026-11-25 04:49:27.390744+00', NULL);

INSERT INTO public.forge_leaders VALUES ('scheduler', NULL, NULL, 7, '2026-11-25 04:49:27.384966+00', '2026-11-25 04:49:27.384966+00', '2026-11-25 04:49:27.384966+00', NULL, '', '', '{}');

INSERT INTO public.forge_limits VALUES ('queue', 'default', 3);

INSERT INTO public.forge_mail OVERRIDING SYSTEM VALUE VALUES (1, 'c', 'p', '2026-11-25 04:49:27.39099+00');

INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-24 04:49:27.390325+00', 1, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-23 04:49:27.390325+00', 2, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-22 04:49:27.390325+00', 3, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-21 04:49:27.390325+00', 4, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-20 04:49:27.390325+00', 5, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-19 04:49:27.390325+00', 6, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-18 04:49:27.390325+00', 7, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-17 04:49:27.390325+00', 8, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-16 04:49:27.390325+00', 9, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-15 04:49:27.390325+00', 10, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-14 04:49:27.390325+00', 11, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-13 04:49:27.390325+00', 12, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-12 04:49:27.390325+00', 13, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-11 04:49:27.390325+00', 14, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-10 04:49:27.390325+00', 15, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-09 04:49:27.390325+00', 16, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-08 04:49:27.390325+00', 17, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-07 04:49:27.390325+00', 18, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-06 04:49:27.390325+00', 19, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-05 04:49:27.390325+00', 20, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-04 04:49:27.390325+00', 21, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-03 04:49:27.390325+00', 22, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-02 04:49:27.390325+00', 23, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-11-01 04:49:27.390325+00', 24, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-31 04:49:27.390325+00', 25, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-30 04:49:27.390325+00', 26, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-29 04:49:27.390325+00', 27, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-28 04:49:27.390325+00', 28, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-27 04:49:27.390325+00', 29, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-26 04:49:27.390325+00', 30, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-25 04:49:27.390325+00', 31, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-24 04:49:27.390325+00', 32, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-23 04:49:27.390325+00', 33, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-22 04:49:27.390325+00', 34, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-21 04:49:27.390325+00', 35, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-20 04:49:27.390325+00', 36, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-19 04:49:27.390325+00', 37, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-18 04:49:27.390325+00', 38, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-17 04:49:27.390325+00', 39, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-16 04:49:27.390325+00', 40, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-15 04:49:27.390325+00', 41, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-14 04:49:27.390325+00', 42, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-13 04:49:27.390325+00', 43, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-12 04:49:27.390325+00', 44, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-11 04:49:27.390325+00', 45, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-10 04:49:27.390325+00', 46, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-09 04:49:27.390325+00', 47, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-08 04:49:27.390325+00', 48, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-07 04:49:27.390325+00', 49, 7, NULL);
INSERT INTO public.forge_metrics_cluster_first VALUES ('m', '{}', '2026-10-06 04:49:27.390325+00', 50, 7, NULL);

INSERT INTO public.forge_metrics_nodes VALUES ('a', '0123456789abcdef', '2026-11-25 04:49:27.390238+00', '{}', '00:00:15');

INSERT INTO public.forge_metrics_rollups VALUES (60, 'm', '{}', '2026-11-25 04:49:27.391212+00', 1, 2, NULL, NULL, 3, NULL);

INSERT INTO public.forge_migrations VALUES (1, 0, true, '2026-11-25 04:49:26.972807');
INSERT INTO public.forge_migrations VALUES (2, 1, true, '2026-11-25 04:49:26.980089');
INSERT INTO public.forge_migrations VALUES (3, 2, true, '2026-11-25 04:49:27.022519');
INSERT INTO public.forge_migrations VALUES (4, 3, true, '2026-11-25 04:49:27.023238');
INSERT INTO public.forge_migrations VALUES (5, 4, true, '2026-11-25 04:49:27.027176');
INSERT INTO public.forge_migrations VALUES (6, 5, true, '2026-11-25 04:49:27.029525');
INSERT INTO public.forge_migrations VALUES (7, 6, true, '2026-11-25 04:49:27.037');
INSERT INTO public.forge_migrations VALUES (8, 7, true, '2026-11-25 04:49:27.03788');
INSERT INTO public.forge_migrations VALUES (9, 8, true, '2026-11-25 04:49:27.045202');
INSERT INTO public.forge_migrations VALUES (10, 9, true, '2026-11-25 04:49:27.045855');
INSERT INTO public.forge_migrations VALUES (11, 10, true, '2026-11-25 04:49:27.048344');
INSERT INTO public.forge_migrations VALUES (12, 11, true, '2026-11-25 04:49:27.049338');
INSERT INTO public.forge_migrations VALUES (13, 12, true, '2026-11-25 04:49:27.052819');
INSERT INTO public.forge_migrations VALUES (14, 13, true, '2026-11-25 04:49:27.0541');
INSERT INTO public.forge_migrations VALUES (15, 14, true, '2026-11-25 04:49:27.057329');
INSERT INTO public.forge_migrations VALUES (16, 15, true, '2026-11-25 04:49:27.05985');
INSERT INTO public.forge_migrations VALUES (17, 16, true, '2026-11-25 04:49:27.064095');
INSERT INTO public.forge_migrations VALUES (18, 17, true, '2026-11-25 04:49:27.065912');
INSERT INTO public.forge_migrations VALUES (19, 18, true, '2026-11-25 04:49:27.073927');
INSERT INTO public.forge_migrations VALUES (20, 19, true, '2026-11-25 04:49:27.074347');
INSERT INTO public.forge_migrations VALUES (21, 20, true, '2026-11-25 04:49:27.079479');
INSERT INTO public.forge_migrations VALUES (22, 21, true, '2026-11-25 04:49:27.083291');
INSERT INTO public.forge_migrations VALUES (23, 22, true, '2026-11-25 04:49:27.084119');
INSERT INTO public.forge_migrations VALUES (24, 23, true, '2026-11-25 04:49:27.09331');
INSERT INTO public.forge_migrations VALUES (25, 24, true, '2026-11-25 04:49:27.09781');
INSERT INTO public.forge_migrations VALUES (26, 26, true, '2026-11-25 04:49:27.10182');
INSERT INTO public.forge_migrations VALUES (27, 33, true, '2026-11-25 04:49:27.107732');
INSERT INTO public.forge_migrations VALUES (28, 34, true, '2026-11-25 04:49:27.107862');
INSERT INTO public.forge_migrations VALUES (29, 35, true, '2026-11-25 04:49:27.113431');
INSERT INTO public.forge_migrations VALUES (30, 40, true, '2026-11-25 04:49:27.117836');
INSERT INTO public.forge_migrations VALUES (31, 42, true, '2026-11-25 04:49:27.120021');
INSERT INTO public.forge_migrations VALUES (32, 45, true, '2026-11-25 04:49:27.120417');
INSERT INTO public.forge_migrations VALUES (33, 46, true, '2026-11-25 04:49:27.121115');
INSERT INTO public.forge_migrations VALUES (34, 47, true, '2026-11-25 04:49:27.121755');
INSERT INTO public.forge_migrations VALUES (35, 50, true, '2026-11-25 04:49:27.122899');
INSERT INTO public.forge_migrations VALUES (36, 51, true, '2026-11-25 04:49:27.124441');
INSERT INTO public.forge_migrations VALUES (37, 55, true, '2026-11-25 04:49:27.124954');
INSERT INTO public.forge_migrations VALUES (38, 60, true, '2026-11-25 04:49:27.125987');
INSERT INTO public.forge_migrations VALUES (39, 61, true, '2026-11-25 04:49:27.127491');
INSERT INTO public.forge_migrations VALUES (40, 62, true, '2026-11-25 04:49:27.130755');
INSERT INTO public.forge_migrations VALUES (41, 63, true, '2026-11-25 04:49:27.131137');

INSERT INTO public.forge_nodes VALUES ('a', '0123456789abcdef', 'one', 0, '', '', 'left', '{scheduler}', '{}', '{}', '{}', '{"default": 4}', 4, 0, '', '2026-11-25 04:49:27.384575+00', '2026-11-25 04:49:27.384575+00', NULL, '{}', '', '{}', '', '', '00:01:00');
INSERT INTO public.forge_nodes VALUES ('b', 'fedcba9876543210', 'two', 0, '', '', 'dead', '{}', '{}', '{}', '{}', '{}', 1, 0, '', '2026-11-25 04:49:27.384575+00', '2026-11-25 04:49:27.384575+00', NULL, '{}', '', '{}', '', '', '00:01:00');

INSERT INTO public.forge_notifications OVERRIDING SYSTEM VALUE VALUES (1, 'other', '2026-11-25 03:59:27.387126+00', 'log', '{"error": ""}', 'pending', 0, '2026-11-25 04:49:27.389111+00', '2026-11-25 04:49:27.389111+00', NULL, '', '', 0, NULL, false);
INSERT INTO public.forge_notifications OVERRIDING SYSTEM VALUE VALUES (2, 'nightly', '2026-11-25 04:49:27.390833+00', 'slack:#ops', '{"job_id": 1}', 'pending', 0, '2026-11-25 04:49:27.390879+00', '2026-11-25 04:49:27.390879+00', NULL, '', '', 0, NULL, false);

INSERT INTO public.forge_sessions VALUES ('\x043a718774c572bd8a25adbeb1bfcd5c0256ae11cecf9f9c3f925d0e52beaf89', 1, '2026-11-25 04:49:27.392266+00', '2026-11-25 05:49:27.392146+00');

INSERT INTO public.forge_silences VALUES ('late', '2026-11-25 04:49:27.393222+00', '2026-11-25 05:49:27.39318+00', 'me', '');

INSERT INTO public.forge_tokens OVERRIDING SYSTEM VALUE VALUES (1, 'ci', '\x1b158839f8aa339e89bb50b1603e90ec68e0fd5565fe10a7cb32729fddf7070a', 'operator', 'me', '2026-11-25 04:49:27.391987+00', NULL, NULL, NULL, NULL);

INSERT INTO public.river_job VALUES (1, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 1}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (2, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 2}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (3, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 3}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (4, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 4}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (5, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 5}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (6, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 6}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (7, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 7}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (8, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 8}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (9, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 9}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (10, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 10}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (11, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 11}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (12, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 12}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (13, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 13}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (14, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 14}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (15, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 15}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (16, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 16}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (17, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 17}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (18, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 18}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (19, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 19}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (20, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 20}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (21, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 21}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (22, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 22}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (23, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 23}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (24, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 24}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (25, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 25}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (26, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 26}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (27, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 27}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (28, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 28}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (29, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 29}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (30, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 30}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (31, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 31}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (32, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 32}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (33, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 33}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (34, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 34}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (35, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 35}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (36, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 36}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (37, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 37}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (38, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 38}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (39, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 39}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (40, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 40}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (41, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 41}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (42, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 42}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (43, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 43}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (44, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 44}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (45, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 45}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (46, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 46}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (47, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 47}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (48, 'available', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 48}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (49, 'scheduled', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 49}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (50, 'retryable', 0, 3, NULL, '2026-11-25 04:49:27.379664+00', NULL, '2026-11-25 05:49:27.379664+00', 1, '{"n": 50}', NULL, NULL, 'kept', '{"forge:cron": "nightly"}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (51, 'completed', 1, 3, '2026-11-25 04:49:27.384176+00', '2026-11-25 04:49:27.384176+00', '2026-11-25 04:49:27.384176+00', '2026-11-25 04:49:27.384176+00', 1, '{}', '{a}', NULL, 'done', '{}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (52, 'discarded', 3, 3, '2026-11-25 04:49:27.384176+00', '2026-11-25 04:49:27.384176+00', '2026-11-25 04:49:27.384176+00', '2026-11-25 04:49:27.384176+00', 1, '{}', '{a}', NULL, 'dead', '{}', 'default', '{}', NULL, NULL);
INSERT INTO public.river_job VALUES (53, 'running', 1, 3, '2026-11-25 04:49:27.384176+00', '2026-11-25 04:49:27.384176+00', NULL, '2026-11-25 04:49:27.384176+00', 1, '{}', '{a}', NULL, 'busy', '{}', 'default', '{}', NULL, NULL);

INSERT INTO public.river_migration VALUES ('main', 1, '2026-11-25 04:49:26.916001+00');
INSERT INTO public.river_migration VALUES ('main', 2, '2026-11-25 04:49:26.922024+00');
INSERT INTO public.river_migration VALUES ('main', 3, '2026-11-25 04:49:26.938456+00');
INSERT INTO public.river_migration VALUES ('main', 4, '2026-11-25 04:49:26.939695+00');
INSERT INTO public.river_migration VALUES ('main', 5, '2026-11-25 04:49:26.944365+00');
INSERT INTO public.river_migration VALUES ('main', 6, '2026-11-25 04:49:26.960481+00');
INSERT INTO public.river_migration VALUES ('main', 7, '2026-11-25 04:49:26.963015+00');
INSERT INTO public.river_migration VALUES ('main', 8, '2026-11-25 04:49:26.970431+00');

SELECT pg_catalog.setval('public.forge_alerts_id_seq', 1, true);

SELECT pg_catalog.setval('public.forge_audit_id_seq', 1, true);

SELECT pg_catalog.setval('public.forge_compactions_id_seq', 1, true);

SELECT pg_catalog.setval('public.forge_events_id_seq', 1, true);

SELECT pg_catalog.setval('public.forge_mail_id_seq', 1, true);

SELECT pg_catalog.setval('public.forge_migrations_id_seq', 41, true);

SELECT pg_catalog.setval('public.forge_notifications_id_seq', 2, true);

SELECT pg_catalog.setval('public.forge_tokens_id_seq', 1, true);

SELECT pg_catalog.setval('public.river_job_id_seq', 53, true);

SELECT pg_catalog.setval('public.river_notification_id_seq', 1, false);

ALTER TABLE ONLY public.forge_alerts
    ADD CONSTRAINT forge_alerts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.forge_audit
    ADD CONSTRAINT forge_audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.forge_compactions
    ADD CONSTRAINT forge_compactions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.forge_config
    ADD CONSTRAINT forge_config_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY public.forge_cron_ticks
    ADD CONSTRAINT forge_cron_ticks_pkey PRIMARY KEY (cron, tick);

ALTER TABLE ONLY public.forge_cron_ticks_first
    ADD CONSTRAINT forge_cron_ticks_first_pkey PRIMARY KEY (cron, tick);

ALTER TABLE ONLY public.forge_crons
    ADD CONSTRAINT forge_crons_pkey PRIMARY KEY (name);

ALTER TABLE ONLY public.forge_enqueued
    ADD CONSTRAINT forge_enqueued_pkey PRIMARY KEY (kind);

ALTER TABLE ONLY public.forge_events
    ADD CONSTRAINT forge_events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.forge_health
    ADD CONSTRAINT forge_health_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY public.forge_idempotency_keys
    ADD CONSTRAINT forge_idempotency_keys_pkey PRIMARY KEY (caller, key);

ALTER TABLE ONLY public.forge_job_log_packs
    ADD CONSTRAINT forge_job_log_packs_pkey PRIMARY KEY (job_id, attempt, first_seq);

ALTER TABLE ONLY public.forge_job_logs
    ADD CONSTRAINT forge_job_logs_pkey PRIMARY KEY (job_id, attempt, seq);

ALTER TABLE ONLY public.forge_leader_history
    ADD CONSTRAINT forge_leader_history_pkey PRIMARY KEY (role, term);

ALTER TABLE ONLY public.forge_leader_requests
    ADD CONSTRAINT forge_leader_requests_pkey PRIMARY KEY (role);

ALTER TABLE ONLY public.forge_leaders
    ADD CONSTRAINT forge_leaders_pkey PRIMARY KEY (role);

ALTER TABLE ONLY public.forge_leaders
    ADD CONSTRAINT forge_leaders_role_term_key UNIQUE (role, term);

ALTER TABLE ONLY public.forge_limits
    ADD CONSTRAINT forge_limits_pkey PRIMARY KEY (scope, name);

ALTER TABLE ONLY public.forge_mail
    ADD CONSTRAINT forge_mail_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.forge_metrics_cluster
    ADD CONSTRAINT forge_metrics_cluster_pkey PRIMARY KEY (metric, labels, at);

ALTER TABLE ONLY public.forge_metrics_cluster_first
    ADD CONSTRAINT forge_metrics_cluster_first_pkey PRIMARY KEY (metric, labels, at);

ALTER TABLE ONLY public.forge_metrics_nodes
    ADD CONSTRAINT forge_metrics_nodes_pkey PRIMARY KEY (node_id);

ALTER TABLE ONLY public.forge_metrics_rollups
    ADD CONSTRAINT forge_metrics_rollups_pkey PRIMARY KEY (step, metric, labels, at);

ALTER TABLE ONLY public.forge_migrations
    ADD CONSTRAINT forge_migrations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.forge_nodes
    ADD CONSTRAINT forge_nodes_pkey PRIMARY KEY (node_id);

ALTER TABLE ONLY public.forge_notifications
    ADD CONSTRAINT forge_notifications_cron_tick_target_key UNIQUE (cron, tick, target);

ALTER TABLE ONLY public.forge_notifications
    ADD CONSTRAINT forge_notifications_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.forge_sessions
    ADD CONSTRAINT forge_sessions_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY public.forge_silences
    ADD CONSTRAINT forge_silences_pkey PRIMARY KEY (alert);

ALTER TABLE ONLY public.forge_tokens
    ADD CONSTRAINT forge_tokens_hash_key UNIQUE (hash);

ALTER TABLE ONLY public.forge_tokens
    ADD CONSTRAINT forge_tokens_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.river_job
    ADD CONSTRAINT river_job_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.river_leader
    ADD CONSTRAINT river_leader_pkey PRIMARY KEY (name);

ALTER TABLE ONLY public.river_migration
    ADD CONSTRAINT river_migration_pkey1 PRIMARY KEY (line, version);

ALTER TABLE ONLY public.river_notification
    ADD CONSTRAINT river_notification_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.river_queue
    ADD CONSTRAINT river_queue_pkey PRIMARY KEY (name);

CREATE UNIQUE INDEX forge_alerts_open ON public.forge_alerts USING btree (alert, labels) WHERE (state <> 'resolved'::text);

CREATE INDEX forge_alerts_resolved_at ON public.forge_alerts USING btree (resolved_at) WHERE (state = 'resolved'::text);

CREATE INDEX forge_audit_at ON public.forge_audit USING btree (at);

CREATE INDEX forge_config_applied_at ON public.forge_config USING btree (applied_at DESC);

CREATE INDEX forge_cron_ticks_job_id ON ONLY public.forge_cron_ticks USING btree (job_id) WHERE (job_id IS NOT NULL);

CREATE INDEX forge_cron_ticks_first_job_id ON public.forge_cron_ticks_first USING btree (job_id) WHERE (job_id IS NOT NULL);

CREATE INDEX forge_cron_ticks_late ON ONLY public.forge_cron_ticks USING btree (recorded_at) WHERE ((recorded_at - tick) > '01:00:00'::interval);

CREATE INDEX forge_cron_ticks_first_late ON public.forge_cron_ticks_first USING btree (recorded_at) WHERE ((recorded_at - tick) > '01:00:00'::interval);

CREATE INDEX forge_cron_ticks_queued ON ONLY public.forge_cron_ticks USING btree (cron, tick) WHERE (verdict = 'queued'::text);

CREATE INDEX forge_cron_ticks_first_queued ON public.forge_cron_ticks_first USING btree (cron, tick) WHERE (verdict = 'queued'::text);

CREATE INDEX forge_cron_ticks_ranges ON ONLY public.forge_cron_ticks USING btree (cron, tick) WHERE (last_tick IS NOT NULL);

CREATE INDEX forge_cron_ticks_first_ranges ON public.forge_cron_ticks_first USING btree (cron, tick) WHERE (last_tick IS NOT NULL);

CREATE INDEX forge_cron_ticks_tick ON ONLY public.forge_cron_ticks USING btree (tick);

CREATE INDEX forge_cron_ticks_first_tick ON public.forge_cron_ticks_first USING btree (tick);

CREATE INDEX forge_events_at ON public.forge_events USING btree (at);

CREATE INDEX forge_idempotency_keys_created_at ON public.forge_idempotency_keys USING btree (created_at);

CREATE INDEX forge_job_log_packs_at ON public.forge_job_log_packs USING btree (at) WHERE (keep_until IS NULL);

CREATE INDEX forge_job_log_packs_keep_until ON public.forge_job_log_packs USING btree (keep_until) WHERE (keep_until IS NOT NULL);

CREATE INDEX forge_job_logs_at ON public.forge_job_logs USING btree (at) WHERE (keep_until IS NULL);

CREATE INDEX forge_job_logs_keep_until ON public.forge_job_logs USING btree (keep_until) WHERE (keep_until IS NOT NULL);

CREATE INDEX forge_leader_history_acquired_at ON public.forge_leader_history USING btree (acquired_at);

CREATE INDEX forge_mail_channel ON public.forge_mail USING btree (channel, id);

CREATE INDEX forge_metrics_cluster_at ON ONLY public.forge_metrics_cluster USING btree (at);

CREATE INDEX forge_metrics_cluster_first_at ON public.forge_metrics_cluster_first USING btree (at);

CREATE INDEX forge_metrics_rollups_at ON public.forge_metrics_rollups USING btree (step, at);

CREATE INDEX forge_notifications_alert ON public.forge_notifications USING btree (alert, id) WHERE (alert IS NOT NULL);

CREATE INDEX forge_notifications_done_at ON public.forge_notifications USING btree (done_at) WHERE (state <> 'pending'::text);

CREATE INDEX forge_notifications_pending ON public.forge_notifications USING btree (next_at) WHERE (state = 'pending'::text);

CREATE INDEX forge_river_job_cron ON public.river_job USING btree (((metadata ->> 'forge:cron'::text)), id) WHERE (metadata ? 'forge:cron'::text);

CREATE INDEX forge_river_job_dead_new ON public.river_job USING btree (((metadata #>> '{forge:dead,attempt}'::text[])), id) WHERE ((state = 'discarded'::public.river_job_state) AND (attempt >= max_attempts) AND (jsonb_typeof(metadata) = 'object'::text) AND ((metadata #>> '{forge:dead,attempt}'::text[]) IS DISTINCT FROM (attempt)::text));

CREATE INDEX forge_river_job_due ON public.river_job USING btree (scheduled_at) WHERE (state = ANY (ARRAY['scheduled'::public.river_job_state, 'retryable'::public.river_job_state]));

CREATE INDEX forge_river_job_queue ON public.river_job USING brin (queue text_bloom_ops (n_distinct_per_range='32')) WITH (pages_per_range='32');

CREATE INDEX forge_river_job_second_round ON public.river_job USING btree (((metadata #>> '{forge:dead,second_round}'::text[])) COLLATE "C") WHERE ((state = 'discarded'::public.river_job_state) AND ((metadata #>> '{forge:dead,second_round}'::text[]) IS NOT NULL));

CREATE INDEX forge_sessions_token ON public.forge_sessions USING btree (token_id);

CREATE UNIQUE INDEX forge_tokens_name ON public.forge_tokens USING btree (name) WHERE (revoked_at IS NULL);

CREATE INDEX river_job_kind ON public.river_job USING btree (kind);

CREATE INDEX river_job_prioritized_fetching_index ON public.river_job USING btree (state, queue, priority, scheduled_at, id) WHERE (state = ANY (ARRAY['available'::public.river_job_state, 'pending'::public.river_job_state, 'retryable'::public.river_job_state, 'running'::public.river_job_state, 'scheduled'::public.river_job_state]));

CREATE INDEX river_job_state_and_finalized_at_index ON public.river_job USING btree (state, finalized_at) WHERE (finalized_at IS NOT NULL);

CREATE UNIQUE INDEX river_job_unique_idx ON public.river_job USING btree (unique_key) WHERE ((unique_key IS NOT NULL) AND (unique_states IS NOT NULL) AND public.river_job_state_in_bitmask(unique_states, state));

CREATE INDEX river_notification_created_at_idx ON public.river_notification USING btree (created_at);

CREATE INDEX river_notification_topic_id_idx ON public.river_notification USING btree (topic, id);

ALTER INDEX public.forge_cron_ticks_job_id ATTACH PARTITION public.forge_cron_ticks_first_job_id;

ALTER INDEX public.forge_cron_ticks_late ATTACH PARTITION public.forge_cron_ticks_first_late;

ALTER INDEX public.forge_cron_ticks_pkey ATTACH PARTITION public.forge_cron_ticks_first_pkey;

ALTER INDEX public.forge_cron_ticks_queued ATTACH PARTITION public.forge_cron_ticks_first_queued;

ALTER INDEX public.forge_cron_ticks_ranges ATTACH PARTITION public.forge_cron_ticks_first_ranges;

ALTER INDEX public.forge_cron_ticks_tick ATTACH PARTITION public.forge_cron_ticks_first_tick;

ALTER INDEX public.forge_metrics_cluster_at ATTACH PARTITION public.forge_metrics_cluster_first_at;

ALTER INDEX public.forge_metrics_cluster_pkey ATTACH PARTITION public.forge_metrics_cluster_first_pkey;

CREATE TRIGGER forge_by_ctid BEFORE DELETE ON public.forge_cron_ticks FOR EACH STATEMENT WHEN ((current_query() ~* '\mctid\M'::text)) EXECUTE FUNCTION public.forge_refuse_ctid();

CREATE TRIGGER forge_by_ctid BEFORE DELETE ON public.forge_metrics_cluster FOR EACH STATEMENT WHEN ((current_query() ~* '\mctid\M'::text)) EXECUTE FUNCTION public.forge_refuse_ctid();

CREATE TRIGGER forge_job_discarded AFTER UPDATE OF state ON public.river_job FOR EACH ROW WHEN (((new.state = 'discarded'::public.river_job_state) AND (old.state <> 'discarded'::public.river_job_state) AND (new.metadata ? 'forge:cron'::text))) EXECUTE FUNCTION public.forge_job_discarded();

CREATE TRIGGER forge_leaders_deleted AFTER DELETE ON public.forge_leaders FOR EACH ROW EXECUTE FUNCTION public.forge_end_tenure_without_row();

CREATE TRIGGER forge_leaders_truncated AFTER TRUNCATE ON public.forge_leaders FOR EACH STATEMENT EXECUTE FUNCTION public.forge_end_tenure_without_row();

CREATE TRIGGER forge_tick_failed AFTER INSERT OR UPDATE OF verdict ON public.forge_cron_ticks FOR EACH ROW WHEN ((new.verdict = 'failed'::text)) EXECUTE FUNCTION public.forge_tick_failed();

ALTER TABLE ONLY public.forge_sessions
    ADD CONSTRAINT forge_sessions_token_id_fkey FOREIGN KEY (token_id) REFERENCES public.forge_tokens(id) ON DELETE CASCADE;

REVOKE ALL ON FUNCTION public.forge_role_bound_transaction(lease interval) FROM PUBLIC;

REVOKE ALL ON FUNCTION public.forge_role_campaign(of_role text, of_node text, lease interval) FROM PUBLIC;

REVOKE ALL ON FUNCTION public.forge_role_fence(of_role text, of_term bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION public.forge_role_renew(of_role text, of_term bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION public.forge_role_step_down(of_role text, of_term bigint) FROM PUBLIC;

