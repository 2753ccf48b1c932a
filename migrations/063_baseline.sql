-- The schema of the first release. It has the number of the last migration of the
-- unreleased builds, so their databases go on from here.
--
-- Contents: nodes, leaders, functions for SQL programs, crons, jobs, metrics and alerts,
-- access.

-- +goose Up

-- === Nodes, the cluster's events and configuration ===

-- One row for each node id. A new process of the node replaces the row and has a new
-- incarnation.
CREATE TABLE forge_nodes (
    node_id           text PRIMARY KEY CHECK (char_length(node_id) BETWEEN 1 AND 63),
    incarnation       text        NOT NULL CHECK (incarnation ~ '^[0-9a-f]{16}$'),
    hostname          text        NOT NULL DEFAULT '',
    pid               integer     NOT NULL DEFAULT 0,
    version           text        NOT NULL DEFAULT '',
    api_url           text        NOT NULL DEFAULT '',
    state             text        NOT NULL DEFAULT 'active'
                      CHECK (state IN ('active', 'draining', 'left', 'dead')),
    roles             text[]      NOT NULL DEFAULT '{}',
    capabilities      text[]      NOT NULL DEFAULT '{}',
    tags              jsonb       NOT NULL DEFAULT '{}',
    -- The job kinds that the process has a worker for. Only jobs of these kinds are
    -- offered to it.
    kinds             text[]      NOT NULL DEFAULT '{}',
    -- For each queue, how many of its jobs the node runs at once.
    queues            jsonb       NOT NULL DEFAULT '{}',
    slots             integer     NOT NULL DEFAULT 0,
    running           integer     NOT NULL DEFAULT 0,
    config_hash       text        NOT NULL DEFAULT '',
    started_at        timestamptz NOT NULL DEFAULT now(),
    last_heartbeat_at timestamptz NOT NULL DEFAULT now(),
    -- Set, and committed, before the node's jobs become available to others. From then
    -- on this incarnation may not claim, finish or heartbeat.
    fenced_at         timestamptz,
    -- For each job, a digest of its definition in the node's own file. A job is only
    -- offered to a node that has the applied definition.
    definitions       jsonb       NOT NULL DEFAULT '{}',
    -- Why the node's edited file was rejected; empty if it was not.
    config_error      text        NOT NULL DEFAULT '',
    -- Changed keys of the edited file that need a restart.
    config_restart    text[]      NOT NULL DEFAULT '{}',
    -- The release of the node's time zone database. Two nodes with different releases
    -- may compute different ticks.
    tzdata            text        NOT NULL DEFAULT '',
    -- Why the node's file waits for forge apply --yes; empty if it does not.
    config_waiting    text        NOT NULL DEFAULT '',
    -- The node's cluster.dead_threshold: readers see it as dead after this silence.
    dead_after        interval    NOT NULL DEFAULT '1 minute'
) WITH (fillfactor = 50);

-- The state of a node as readers see it. The stored state is what was recorded, and no
-- death is recorded while no node leads the scheduler.
CREATE FUNCTION forge_node_state(state text, last_heartbeat_at timestamptz, dead_after interval) RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN state IN ('active', 'draining') AND clock_timestamp() - last_heartbeat_at >= dead_after
                THEN 'dead' ELSE state END
$$;

CREATE TABLE forge_events (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    type    text        NOT NULL,
    node_id text,
    role    text,
    term    bigint,
    data    jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX forge_events_at ON forge_events (at);

-- Every applied version of the shared sections of forge.toml, by hash. The one with the
-- newest applied_at is in force.
CREATE TABLE forge_config (
    hash       text PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_by text        NOT NULL,
    body       jsonb       NOT NULL,
    -- The name of the cluster that the file was written for; empty if it is unknown. A
    -- file of another cluster is not applied without confirmation.
    cluster    text        NOT NULL DEFAULT ''
);
CREATE INDEX forge_config_applied_at ON forge_config (applied_at DESC);

-- Messages between the scheduler's leader and the nodes behind a transaction pooler,
-- where LISTEN does not work; empty elsewhere. The table is not logged, because messages
-- may be lost.
CREATE UNLOGGED TABLE forge_mail (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    channel text        NOT NULL,
    payload text        NOT NULL,
    sent_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX forge_mail_channel ON forge_mail (channel, id);

-- === Leaders, their history and the health of the cluster ===

-- The lease of each role. Rows are never deleted, so that terms only go up. UNIQUE (role,
-- term) makes FOR KEY SHARE (the fence) conflict with a change of the term and with
-- nothing else.
CREATE TABLE forge_leaders (
    role        text PRIMARY KEY CHECK (char_length(role) BETWEEN 1 AND 63),
    node_id     text,
    incarnation text,
    term        bigint      NOT NULL DEFAULT 0 CHECK (term >= 0),
    acquired_at timestamptz,
    renewed_at  timestamptz,
    lease_until timestamptz,
    backend_pid integer,
    api_url     text        NOT NULL DEFAULT '',
    -- PostgreSQL's timeline when the term began: two primaries have two timelines.
    timeline    text        NOT NULL DEFAULT '',
    metadata    jsonb       NOT NULL DEFAULT '{}',
    UNIQUE (role, term)
) WITH (fillfactor = 50);

CREATE TABLE forge_leader_history (
    role        text        NOT NULL,
    term        bigint      NOT NULL,
    node_id     text        NOT NULL,
    incarnation text        NOT NULL,
    acquired_at timestamptz NOT NULL,
    -- The last instant at which the leader is known to have led.
    ended_at    timestamptz,
    end_reason  text CHECK (end_reason IN ('resigned', 'stepped_down', 'transferred', 'crashed',
                                           'lease_expired', 'evicted', 'database_lost', 'unknown')),
    -- The time without a leader before this term; null for the first term of a role.
    gap         interval,
    timeline    text        NOT NULL DEFAULT '',
    -- The advisory lock that elected the term; null if the lease alone did. A lock says
    -- nothing about a term that it did not elect, so nodes with different lock ids never
    -- lead at the same time.
    lock_id     bigint,
    PRIMARY KEY (role, term)
);
CREATE INDEX forge_leader_history_acquired_at ON forge_leader_history (acquired_at);

-- If a row of forge_leaders is deleted in spite of the above, its leader's term ends: the
-- fence refuses what that leader writes from then on. The next leader inserts the row
-- again, with a term above the history's highest.
-- +goose StatementBegin
CREATE FUNCTION forge_end_tenure_without_row() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE forge_leader_history AS h
    SET ended_at = greatest(h.acquired_at, clock_timestamp()), end_reason = 'unknown'
    WHERE h.ended_at IS NULL AND (TG_OP = 'TRUNCATE' OR h.role = OLD.role AND h.term = OLD.term);
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER forge_leaders_deleted AFTER DELETE ON forge_leaders
    FOR EACH ROW EXECUTE FUNCTION forge_end_tenure_without_row();
CREATE TRIGGER forge_leaders_truncated AFTER TRUNCATE ON forge_leaders
    FOR EACH STATEMENT EXECUTE FUNCTION forge_end_tenure_without_row();

-- Requests of operators, at most one for each role. The leader of that term reads it when
-- it renews. A request about an earlier term has no effect.
CREATE TABLE forge_leader_requests (
    role           text PRIMARY KEY CHECK (char_length(role) BETWEEN 1 AND 63),
    term           bigint      NOT NULL,
    -- The node that leads next; null for any other node.
    target         text,
    requested_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Until then only the target may take the vacated role.
    reserved_until timestamptz
);

-- The number by which this cluster moves the lock ids that its configuration leaves open,
-- so that clusters in other schemas of the database have other locks. It is fixed here
-- once; in the schema public it is 0.
-- +goose StatementBegin
DO $$
DECLARE
    moved bigint := 0;
BEGIN
    IF current_schema() <> 'public' THEN
        -- 46 bits, above the 16 by which the ids of the roles differ, never 0
        moved := (1 + ('x' || substr(encode(sha256(convert_to(current_schema(), 'UTF8')), 'hex'), 1, 12))::bit(48)::bigint % (2 ^ 46 - 1)::bigint) << 16;
    END IF;
    EXECUTE format('CREATE FUNCTION forge_lock_offset() RETURNS bigint LANGUAGE sql IMMUTABLE AS %L', 'SELECT ' || moved || '::bigint');
END
$$;
-- +goose StatementEnd

-- Waits at most slice for the end of the session that holds an advisory lock, and returns
-- when it ended; null if it has not. Short slices keep a waiter from holding back VACUUM.
-- The time-out is caught here, so that nothing is logged.
-- +goose StatementBegin
CREATE FUNCTION forge_await_session_end(class integer, object integer, slice interval) RETURNS timestamptz
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', ceil(1000 * extract(epoch FROM slice))::text, true);
    PERFORM pg_advisory_xact_lock_shared(class, object);
    RETURN clock_timestamp();
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- Waits in up to as many slices, in one statement. Each slice is a transaction of its own,
-- so the waiter holds back VACUUM no longer than the function does.
-- +goose StatementBegin
CREATE PROCEDURE forge_await_session_end(class integer, object integer, slice interval, slices integer, INOUT ended timestamptz)
LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 1..slices LOOP
        ended := forge_await_session_end(class, object, slice);
        COMMIT;
        EXIT WHEN ended IS NOT NULL;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Whether the cluster is degraded. There is one row, so that each change is recorded once.
CREATE TABLE forge_health (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    degraded_at timestamptz
);
INSERT INTO forge_health DEFAULT VALUES;

-- Why the cluster is degraded, as an array of texts; null if it is not. It is if a node is
-- dead and has not come back, or if a role that a node should lead has had no leader for
-- five seconds, counted from the end of the last lease, while a node was there.
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

-- Returns whether the cluster is degraded, and records in forge_events when that has
-- changed; null if another transaction is evaluating it. It inserts the row of forge_health
-- again if somebody has deleted it: without the row no change would be recorded.
-- +goose StatementBegin
CREATE FUNCTION forge_judge_health() RETURNS boolean
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

-- === Functions for programs that only have SQL ===

-- The leader of a role; no row if there is none.
CREATE FUNCTION forge_leader(of_role text)
RETURNS TABLE (node_id text, term bigint, lease_until timestamptz, api_url text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT l.node_id, l.term, l.lease_until, l.api_url
    FROM forge_leaders l
    WHERE l.role = of_role AND l.node_id IS NOT NULL AND l.lease_until > clock_timestamp()
$$;

-- The fence: call it first in the transaction that writes, and roll back unless it returns
-- true. No other term can begin before that transaction has ended.
-- +goose StatementBegin
CREATE FUNCTION forge_term_is_current(of_role text, of_term bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM FROM forge_leaders l
    WHERE l.role = of_role AND l.term = of_term AND l.node_id IS NOT NULL
    FOR KEY SHARE;
    RETURN FOUND;
END
$$;
-- +goose StatementEnd

-- Elections. A role is won for a lease, by the database's clock, and the term is recorded
-- as every other one is. Its incarnation begins with "sql:": these functions change no
-- term of a node or of forge run, and cannot take forge's own roles.
--
-- They run with the rights of their owner, so a login needs only EXECUTE, which has to be
-- granted. Their search_path is fixed at the end of this file.

-- Takes the role for a lease and returns the new term; null if another program leads, if
-- the role is reserved for another, or if a transaction of the last term has not ended. The
-- term begins with the commit, so call it outside of longer transactions.
-- +goose StatementBegin
CREATE FUNCTION forge_role_campaign(of_role text, of_node text, lease interval DEFAULT interval '30 seconds') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '200ms' AS $$
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
$$;
-- +goose StatementEnd

-- Renews the lease of a term for its original length. On false, stop the work and step
-- down: the lease has expired, or an operator wants another leader.
-- +goose StatementBegin
CREATE FUNCTION forge_role_renew(of_role text, of_term bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    UPDATE forge_leaders l
    SET renewed_at = now.at, lease_until = now.at + (l.lease_until - l.renewed_at)
    FROM (SELECT clock_timestamp() AS at) now
    WHERE l.role = of_role AND l.term = of_term AND starts_with(l.incarnation, 'sql:') AND l.lease_until > now.at
      AND NOT EXISTS (SELECT FROM forge_leader_requests r WHERE r.role = of_role AND r.term = of_term);
    RETURN FOUND;
END
$$;
-- +goose StatementEnd

-- Gives the role up; false if the term was already over. No other term begins before the
-- last fenced transaction of this one has ended.
-- +goose StatementBegin
CREATE FUNCTION forge_role_step_down(of_role text, of_term bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
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
-- +goose StatementEnd

-- The fence: call it first in each transaction that writes for the term. It fails if the
-- term is over, and no other term can begin before the transaction has ended.
-- +goose StatementBegin
CREATE FUNCTION forge_role_fence(of_role text, of_term bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
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
-- +goose StatementEnd

-- Makes the server end this transaction's session if its client is silent for a lease:
-- no other program could lead meanwhile.
-- +goose StatementBegin
CREATE FUNCTION forge_role_bound_transaction(lease interval) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    most bigint := ceil(1000 * extract(epoch FROM lease));
    now bigint := (SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout');
BEGIN
    IF now = 0 OR now > most THEN
        PERFORM set_config('idle_in_transaction_session_timeout', most::text, true);
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE
    one regprocedure;
BEGIN
    FOR one IN SELECT p.oid FROM pg_proc p
               WHERE p.pronamespace = current_schema()::regnamespace AND starts_with(p.proname, 'forge_role_')
    LOOP
        -- pg_temp comes last, because any caller may create tables there.
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', one, current_schema());
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', one);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- === Crons and their ledger ===

-- There is no index on next_tick, because every tick moves it. A leader reads all crons
-- once and keeps their next ticks in memory; the row is rewritten in place.
CREATE TABLE forge_crons (
    name          text PRIMARY KEY CHECK (char_length(name) BETWEEN 1 AND 100),
    -- The applied definition: schedule, timezone, job, args and policies.
    spec          jsonb       NOT NULL,
    spec_hash     text        NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Set when the configuration no longer has the cron. Its ticks are kept.
    removed_at    timestamptz,
    paused_at     timestamptz,
    -- Every due tick up to and including this instant is in the ledger.
    watermark     timestamptz NOT NULL,
    -- The first due tick after the watermark; null if there is none.
    next_tick     timestamptz,
    -- The job of the earlier run because of which the newest tick was skipped, and the
    -- first tick that was skipped since the cron last fired.
    blocked_by    bigint,
    blocked_since timestamptz
) WITH (fillfactor = 70);

-- The ledger: one row for each due tick of each cron. The unique key makes a double run
-- impossible. It is partitioned by tick. The first partition takes every tick; the log
-- compactor's leader creates more. There is no default partition: the first one begins at
-- the minimum and the last one ends at the maximum, so they are in order, and a query for
-- a cron's newest ticks begins with the newest partition and mostly ends there.
CREATE TABLE forge_cron_ticks (
    cron        text        NOT NULL,
    tick        timestamptz NOT NULL,
    verdict     text        NOT NULL CHECK (verdict IN (
                    'fired', 'caught_up', 'queued', 'skipped_overlap', 'skipped_window', 'skipped_limit',
                    'skipped_dst', 'skipped_paused', 'skipped_excluded', 'replaced', 'failed',
                    'triggered', 'backfilled')),
    reason      text        NOT NULL DEFAULT '',
    job_id      bigint,
    term        bigint      NOT NULL,
    node_id     text        NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- From the tick to the commit that recorded it, in milliseconds.
    lateness_ms double precision NOT NULL DEFAULT 0,
    -- A long stretch of skipped ticks is one row: tick is the first, last_tick the last
    -- and tick_count their number.
    last_tick   timestamptz,
    tick_count  bigint      NOT NULL DEFAULT 1 CHECK (tick_count >= 1),
    PRIMARY KEY (cron, tick)
) PARTITION BY RANGE (tick);
CREATE INDEX forge_cron_ticks_tick ON forge_cron_ticks (tick);
CREATE INDEX forge_cron_ticks_job_id ON forge_cron_ticks (job_id) WHERE job_id IS NOT NULL;
-- Finds the queued ticks.
CREATE INDEX forge_cron_ticks_queued ON forge_cron_ticks (cron, tick) WHERE verdict = 'queued';
-- Finds the range that contains a tick, however many rows are in between.
CREATE INDEX forge_cron_ticks_ranges ON forge_cron_ticks (cron, tick) WHERE last_tick IS NOT NULL;
-- Finds the ticks that were recorded long after they were due, such as backfills. They may
-- have to stay when other rows of their age are deleted.
CREATE INDEX forge_cron_ticks_late ON forge_cron_ticks (recorded_at)
    WHERE recorded_at - tick > interval '1 hour';

CREATE TABLE forge_cron_ticks_first (LIKE forge_cron_ticks INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
    PRIMARY KEY (cron, tick));
CREATE INDEX forge_cron_ticks_first_tick ON forge_cron_ticks_first (tick);
CREATE INDEX forge_cron_ticks_first_job_id ON forge_cron_ticks_first (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX forge_cron_ticks_first_queued ON forge_cron_ticks_first (cron, tick) WHERE verdict = 'queued';
CREATE INDEX forge_cron_ticks_first_ranges ON forge_cron_ticks_first (cron, tick) WHERE last_tick IS NOT NULL;
CREATE INDEX forge_cron_ticks_first_late ON forge_cron_ticks_first (recorded_at)
    WHERE recorded_at - tick > interval '1 hour';
ALTER TABLE forge_cron_ticks ATTACH PARTITION forge_cron_ticks_first FOR VALUES FROM (MINVALUE) TO (MAXVALUE);

-- Gives one table the owner and the rights of another.
-- +goose StatementBegin
CREATE FUNCTION forge_rights_as(here regclass, there regclass) RETURNS void
LANGUAGE plpgsql AS $$
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
-- +goose StatementEnd

-- In a partitioned table a ctid does not identify one row, because each partition has its
-- own. So a DELETE by ctid is refused.
-- +goose StatementBegin
CREATE FUNCTION forge_refuse_ctid() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % cannot be deleted by ctid: it has partitions', TG_TABLE_NAME
        USING ERRCODE = 'feature_not_supported', HINT = 'Delete by the key, or use the forge that migrated the schema.';
END
$$;
-- +goose StatementEnd
CREATE TRIGGER forge_by_ctid BEFORE DELETE ON forge_cron_ticks FOR EACH STATEMENT
WHEN (current_query() ~* '\mctid\M') EXECUTE FUNCTION forge_refuse_ctid();

-- === Jobs: what forge adds to River's table, limits and output ===

-- Every attempt rewrites its job's row. With PostgreSQL's defaults a table is vacuumed when
-- a fifth of it is dead and analyzed when a tenth has changed: on a big table that is hours
-- of bloat, and plans made for another load. The thresholds keep a small table from being
-- vacuumed all the time. The fill factor leaves room on each page for the later versions
-- of its rows, so that an update touches one page and not two.
ALTER TABLE river_job SET (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_analyze_threshold = 500,
    fillfactor = 60
);

-- Every job is written three times, and each time all indexes are, because one of them has
-- the state. These two are GIN indexes over arguments and metadata that neither forge nor
-- River's workers read. Without them a job needs two thirds of the time and of the WAL.
DROP INDEX IF EXISTS river_job_args_index;
DROP INDEX IF EXISTS river_job_metadata_index;

-- Queries by state and queue are for unfinished jobs. Without the finished ones this index
-- needs one entry less for each job, a tenth of the server's time, and stays small.
DROP INDEX IF EXISTS river_job_prioritized_fetching_index;
CREATE INDEX river_job_prioritized_fetching_index ON river_job (state, queue, priority, scheduled_at, id)
    WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled');

-- Finds scheduled and retryable jobs by due time without reading the backlog.
CREATE INDEX forge_river_job_due ON river_job (scheduled_at) WHERE state IN ('scheduled', 'retryable');
-- Finds the runs of a cron, for overlap and history.
CREATE INDEX forge_river_job_cron ON river_job ((metadata ->> 'forge:cron'), id)
    WHERE metadata ? 'forge:cron';
-- Find the dead letters that the scheduler's leader has not recorded yet, and those that
-- wait for their second round. Both indexes are empty most of the time, and are used only
-- by a query that orders by these expressions.
CREATE INDEX forge_river_job_dead_new ON river_job ((metadata #>> '{forge:dead,attempt}'), id)
    WHERE state = 'discarded' AND attempt >= max_attempts AND jsonb_typeof(metadata) = 'object'
      AND (metadata #>> '{forge:dead,attempt}') IS DISTINCT FROM attempt::text;
CREATE INDEX forge_river_job_second_round ON river_job ((metadata #>> '{forge:dead,second_round}') COLLATE "C")
    WHERE state = 'discarded' AND (metadata #>> '{forge:dead,second_round}') IS NOT NULL;
-- Finds the pages that may have jobs of a queue, so that a list of a small queue does not
-- read all jobs. It is five hundred times smaller than a B-tree, and an insert or update
-- touches it only if its page gets its first job of a queue.
CREATE INDEX forge_river_job_queue ON river_job USING brin (queue text_bloom_ops (n_distinct_per_range = 32)) WITH (pages_per_range = 32);

-- The limits of the applied configuration on how many jobs run at once in the cluster. A
-- claim of limited jobs locks its rows, counts the running jobs, and takes no more than is
-- left. Jobs without limits read no row.
CREATE TABLE forge_limits (
    scope text    NOT NULL CHECK (scope IN ('queue', 'job')),
    name  text    NOT NULL,
    most  integer NOT NULL CHECK (most > 0),
    PRIMARY KEY (scope, name)
) WITH (fillfactor = 50);

-- Counts of jobs that were inserted by processes without metrics, such as commands, until
-- a node adds them to its own.
CREATE TABLE forge_enqueued (
    kind text   PRIMARY KEY,
    jobs bigint NOT NULL
);

-- The output of each attempt, in chunks. Rows come and go within minutes, so their space
-- is vacuumed soon.
CREATE TABLE forge_job_logs (
    job_id     bigint      NOT NULL,
    attempt    smallint    NOT NULL,
    seq        integer     NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    stream     text        NOT NULL CHECK (stream IN ('stdout', 'stderr', 'system')),
    chunk      text        NOT NULL,
    -- Set if the job has a retention of its own, which takes precedence.
    keep_until timestamptz,
    PRIMARY KEY (job_id, attempt, seq)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0.2
);
CREATE INDEX forge_job_logs_at ON forge_job_logs (at) WHERE keep_until IS NULL;
CREATE INDEX forge_job_logs_keep_until ON forge_job_logs (keep_until) WHERE keep_until IS NOT NULL;

-- The output of finished attempts: many chunks in one row, compressed. A chunk is here or
-- in forge_job_logs; if it is in both, this one counts. The ranges from first_seq to
-- last_seq of one attempt do not overlap.
CREATE TABLE forge_job_log_packs (
    job_id     bigint      NOT NULL,
    attempt    smallint    NOT NULL,
    first_seq  integer     NOT NULL,
    last_seq   integer     NOT NULL,
    chunks     integer     NOT NULL,
    -- The length of the text before it was compressed.
    text_bytes integer     NOT NULL,
    -- The time of the newest chunk: the row is deleted when all of it is past retention.
    at         timestamptz NOT NULL,
    keep_until timestamptz,
    pack       bytea       NOT NULL,
    PRIMARY KEY (job_id, attempt, first_seq)
);
-- PostgreSQL need not try to compress it again.
ALTER TABLE forge_job_log_packs ALTER COLUMN pack SET STORAGE EXTERNAL;
CREATE INDEX forge_job_log_packs_at ON forge_job_log_packs (at) WHERE keep_until IS NULL;
CREATE INDEX forge_job_log_packs_keep_until ON forge_job_log_packs (keep_until) WHERE keep_until IS NOT NULL;

-- The passes of the log compactor's leader.
CREATE TABLE forge_compactions (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    term       bigint      NOT NULL,
    node_id    text        NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL,
    -- When the next pass is due.
    next_at    timestamptz NOT NULL,
    -- The deleted rows, and the errors, by what was to be deleted.
    removed    jsonb       NOT NULL DEFAULT '{}',
    failed     jsonb       NOT NULL DEFAULT '{}',
    chunks     bigint      NOT NULL DEFAULT 0,
    packs      bigint      NOT NULL DEFAULT 0,
    text_bytes bigint      NOT NULL DEFAULT 0,
    pack_bytes bigint      NOT NULL DEFAULT 0
);

-- === Metrics, alerts and notifications ===

-- Each node's newest snapshot of its own metrics.
CREATE TABLE forge_metrics_nodes (
    node_id     text PRIMARY KEY,
    incarnation text        NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    samples     jsonb       NOT NULL,
    -- How often the node reports its metrics. It has stopped reporting after three times
    -- that without a report.
    every       interval    NOT NULL DEFAULT '15 seconds'
) WITH (fillfactor = 50);

-- The cluster's totals, one row for each metric, label set and instant, written by the
-- metrics aggregator's leader. Partitioned as forge_cron_ticks is.
CREATE TABLE forge_metrics_cluster (
    metric    text             NOT NULL,
    labels    jsonb            NOT NULL DEFAULT '{}',
    at        timestamptz      NOT NULL,
    value     double precision NOT NULL,
    term      bigint           NOT NULL,
    -- The buckets of a histogram, whose number of values is in value; null for other kinds.
    histogram jsonb,
    PRIMARY KEY (metric, labels, at)
) PARTITION BY RANGE (at);
CREATE INDEX forge_metrics_cluster_at ON forge_metrics_cluster (at);
CREATE TABLE forge_metrics_cluster_first (LIKE forge_metrics_cluster INCLUDING DEFAULTS,
    PRIMARY KEY (metric, labels, at));
CREATE INDEX forge_metrics_cluster_first_at ON forge_metrics_cluster_first (at);
ALTER TABLE forge_metrics_cluster ATTACH PARTITION forge_metrics_cluster_first FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
CREATE TRIGGER forge_by_ctid BEFORE DELETE ON forge_metrics_cluster FOR EACH STATEMENT
WHEN (current_query() ~* '\mctid\M') EXECUTE FUNCTION forge_refuse_ctid();

-- The history of the cluster's metrics: each series in windows of some length.
CREATE TABLE forge_metrics_rollups (
    -- The length of the window in seconds: 60, 300 or 3600.
    step      integer          NOT NULL,
    metric    text             NOT NULL,
    labels    jsonb            NOT NULL,
    -- The beginning of the window.
    at        timestamptz      NOT NULL,
    -- The seconds of the window that have totals.
    covered   double precision NOT NULL,
    -- A gauge's mean, a counter's increase, or the number of a histogram's new values.
    value     double precision NOT NULL,
    least     double precision,
    greatest  double precision,
    last      double precision NOT NULL,
    histogram jsonb,
    PRIMARY KEY (step, metric, labels, at)
);
CREATE INDEX forge_metrics_rollups_at ON forge_metrics_rollups (step, at);

-- Incidents of [[alerts]]: one row for each alert, label set and stretch of time in which
-- the condition held. A pending incident whose condition no longer holds is deleted.
CREATE TABLE forge_alerts (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    alert       text             NOT NULL,
    labels      jsonb            NOT NULL,
    annotations jsonb            NOT NULL DEFAULT '{}',
    severity    text             NOT NULL DEFAULT '',
    -- The alert's targets when its condition held.
    notify      text[]           NOT NULL DEFAULT '{}',
    state       text             NOT NULL CHECK (state IN ('pending', 'firing', 'resolved')),
    -- The value of the expression when the state last changed.
    value       double precision NOT NULL,
    active_at   timestamptz      NOT NULL,
    fired_at    timestamptz,
    resolved_at timestamptz,
    -- The term of the metrics aggregator's leader that wrote it last.
    term        bigint           NOT NULL,
    -- It fired while its alert was silenced: receivers were not notified.
    muted       boolean          NOT NULL DEFAULT false,
    -- Since when the condition of a firing alert no longer holds, while keep_firing_for
    -- keeps it firing; null if the condition holds.
    kept_since  timestamptz
);
CREATE UNIQUE INDEX forge_alerts_open ON forge_alerts (alert, labels) WHERE state <> 'resolved';
CREATE INDEX forge_alerts_resolved_at ON forge_alerts (resolved_at) WHERE state = 'resolved';

-- Alerts whose receivers are not notified until an instant. An expired row has no effect,
-- and is deleted with the next change.
CREATE TABLE forge_silences (
    alert      text        PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    until      timestamptz NOT NULL,
    created_by text        NOT NULL,
    reason     text        NOT NULL DEFAULT ''
);

-- Notifications for receivers: about an alert, or about the final failure of a cron's run,
-- once for each tick and target. A notification about an alert that was not sent before
-- the next one is superseded.
CREATE TABLE forge_notifications (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cron       text,
    tick       timestamptz,
    -- A receiver, and one of its places if it has several: slack:#ops.
    target     text        NOT NULL,
    -- The content: job_id, job, attempts and error.
    facts      jsonb       NOT NULL DEFAULT '{}',
    state      text        NOT NULL DEFAULT 'pending',
    attempts   integer     NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- It is not sent before this instant: the next attempt, or the end of the time that the
    -- present sender has.
    next_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at    timestamptz,
    -- The error of the last attempt.
    error      text        NOT NULL DEFAULT '',
    -- The node of the last attempt.
    node_id    text        NOT NULL DEFAULT '',
    term       bigint      NOT NULL DEFAULT 0,
    alert      text,
    sending    boolean     NOT NULL DEFAULT false,
    UNIQUE (cron, tick, target),
    CHECK ((alert IS NULL) = (cron IS NOT NULL) AND (alert IS NULL) = (tick IS NOT NULL)),
    CONSTRAINT forge_notifications_state_check CHECK (state IN ('pending', 'delivered', 'failed', 'superseded'))
);
CREATE INDEX forge_notifications_pending ON forge_notifications (next_at) WHERE state = 'pending';
CREATE INDEX forge_notifications_done_at ON forge_notifications (done_at) WHERE state <> 'pending';
CREATE INDEX forge_notifications_alert ON forge_notifications (alert, id) WHERE alert IS NOT NULL;

-- Inserts the notifications that a cron's definition wants about a failed run. It is called
-- in the transaction that makes the failure final, so that after a crash both are there or
-- neither is.
-- +goose StatementBegin
CREATE FUNCTION forge_tell_failure(of_cron text, of_tick timestamptz, of_facts jsonb) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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
-- +goose StatementEnd

-- Any program may write a job's metadata: a job with an unreadable tick is no cron's run.
-- +goose StatementBegin
CREATE FUNCTION forge_job_discarded() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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
-- +goose StatementEnd
CREATE TRIGGER forge_job_discarded AFTER UPDATE OF state ON river_job FOR EACH ROW
WHEN (NEW.state = 'discarded' AND OLD.state <> 'discarded' AND NEW.metadata ? 'forge:cron')
EXECUTE FUNCTION forge_job_discarded();

-- +goose StatementBegin
CREATE FUNCTION forge_tick_failed() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM forge_tell_failure(NEW.cron, NEW.tick, jsonb_build_object('error', left(NEW.reason, 2000)));
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER forge_tick_failed AFTER INSERT OR UPDATE OF verdict ON forge_cron_ticks FOR EACH ROW
WHEN (NEW.verdict = 'failed') EXECUTE FUNCTION forge_tick_failed();

-- === Tokens, sessions, the audit log and idempotency keys ===

-- Only the SHA-256 of a token is stored. The token has 256 random bits, so it cannot be
-- guessed and needs no salt.
CREATE TABLE forge_tokens (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text        NOT NULL,
    hash         bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    scope        text        NOT NULL CHECK (scope IN ('viewer', 'operator', 'admin')),
    created_by   text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz,
    -- To the minute.
    last_used_at timestamptz,
    revoked_at   timestamptz,
    revoked_by   text
);
-- The name of a revoked token may be used again.
CREATE UNIQUE INDEX forge_tokens_name ON forge_tokens (name) WHERE revoked_at IS NULL;

-- Logins to the pages. A session has the scope of its token and ends with it.
CREATE TABLE forge_sessions (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    token_id   bigint      NOT NULL REFERENCES forge_tokens ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX forge_sessions_token ON forge_sessions (token_id);

-- Operations and refusals, with their actors.
CREATE TABLE forge_audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A token's name, "anonymous" or "cli:" and a user of the system.
    actor      text        NOT NULL,
    -- An address, or the machine where a command ran.
    source     text        NOT NULL,
    action     text        NOT NULL,
    object     text        NOT NULL,
    -- An operation that stays begun was interrupted, and its effect is unknown.
    outcome    text        NOT NULL CHECK (outcome IN ('begun', 'done', 'refused', 'failed')),
    detail     text        NOT NULL DEFAULT ''
);
CREATE INDEX forge_audit_at ON forge_audit (at);

-- The responses to requests with a key, so that a repeated request gets the same response
-- and does nothing. The row is written in the transaction of the operation.
CREATE TABLE forge_idempotency_keys (
    -- "token:" and the token's id, or "anonymous".
    caller     text        NOT NULL,
    key        text        NOT NULL,
    -- Of the method, the address and the body: another request may not use the key.
    digest     bytea       NOT NULL CHECK (octet_length(digest) = 32),
    status     integer     NOT NULL DEFAULT 0,
    location   text        NOT NULL DEFAULT '',
    body       bytea       NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (caller, key)
);
CREATE INDEX forge_idempotency_keys_created_at ON forge_idempotency_keys (created_at);

-- +goose Down

-- Removes everything of forge. River's tables and jobs stay, with River's own indexes.

DROP FUNCTION forge_role_bound_transaction, forge_role_fence, forge_role_step_down, forge_role_renew,
    forge_role_campaign, forge_term_is_current, forge_leader;
DROP TRIGGER forge_job_discarded ON river_job;
DROP TABLE forge_idempotency_keys, forge_audit, forge_sessions, forge_tokens;
DROP TABLE forge_notifications, forge_silences, forge_alerts;
DROP TABLE forge_metrics_rollups, forge_metrics_cluster, forge_metrics_nodes;
DROP TABLE forge_compactions, forge_job_log_packs, forge_job_logs, forge_enqueued, forge_limits;
DROP TABLE forge_cron_ticks, forge_crons;
DROP TABLE forge_health, forge_leader_requests, forge_leader_history, forge_leaders;
DROP TABLE forge_mail, forge_config, forge_events, forge_nodes;
DROP FUNCTION forge_tick_failed, forge_job_discarded, forge_tell_failure, forge_refuse_ctid, forge_rights_as,
    forge_judge_health, forge_health_causes, forge_lock_offset, forge_end_tenure_without_row, forge_node_state;
DROP ROUTINE forge_await_session_end(integer, integer, interval, integer, timestamptz);
DROP FUNCTION forge_await_session_end(integer, integer, interval);

DROP INDEX forge_river_job_due, forge_river_job_cron, forge_river_job_dead_new, forge_river_job_second_round,
    forge_river_job_queue, river_job_prioritized_fetching_index;
ALTER TABLE river_job RESET (
    autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_threshold,
    autovacuum_vacuum_insert_scale_factor,
    autovacuum_analyze_scale_factor,
    autovacuum_analyze_threshold,
    fillfactor
);
CREATE INDEX river_job_prioritized_fetching_index ON river_job (state, queue, priority, scheduled_at, id);
CREATE INDEX river_job_args_index ON river_job USING gin (args);
CREATE INDEX river_job_metadata_index ON river_job USING gin (metadata);

-- The numbers of the migrations that the baseline replaced.
DELETE FROM forge_migrations WHERE version_id BETWEEN 1 AND 62;
