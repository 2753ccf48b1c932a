-- +goose Up

-- One row per process that ever joined under a node id. A new process of the
-- same node id replaces the row and brings a fresh incarnation.
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
    -- Job kinds this process has a worker for; a job is only offered to a node
    -- that lists its kind.
    kinds             text[]      NOT NULL DEFAULT '{}',
    -- Queue name to the most jobs this node runs from it at once.
    queues            jsonb       NOT NULL DEFAULT '{}',
    slots             integer     NOT NULL DEFAULT 0,
    running           integer     NOT NULL DEFAULT 0,
    config_hash       text        NOT NULL DEFAULT '',
    started_at        timestamptz NOT NULL DEFAULT now(),
    last_heartbeat_at timestamptz NOT NULL DEFAULT now(),
    -- Set, and committed, before the node's jobs are given to others: from then
    -- on this incarnation may not claim, finish or heartbeat.
    fenced_at         timestamptz
) WITH (fillfactor = 50);

-- The visibility lease of each role. Rows are never deleted, so that terms only
-- go up. UNIQUE (role, term) makes FOR KEY SHARE (the fence) conflict with a
-- change of term and with nothing else.
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
    -- PostgreSQL's timeline at the mint: two primaries show as two timelines.
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
    -- Leaderless time before this tenure; null for the first one of a role.
    gap         interval,
    timeline    text        NOT NULL DEFAULT '',
    PRIMARY KEY (role, term)
);
CREATE INDEX forge_leader_history_acquired_at ON forge_leader_history (acquired_at);

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

-- Every version of the cluster's sections of forge.toml that was ever applied,
-- by hash. The one with the newest applied_at is in force.
CREATE TABLE forge_config (
    hash       text PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_by text        NOT NULL,
    body       jsonb       NOT NULL
);
CREATE INDEX forge_config_applied_at ON forge_config (applied_at DESC);

CREATE TABLE forge_crons (
    name       text PRIMARY KEY CHECK (char_length(name) BETWEEN 1 AND 100),
    -- The applied definition: schedule, timezone, job, args and policies.
    spec       jsonb       NOT NULL,
    spec_hash  text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Set when the cron left the configuration; its ticks are kept.
    removed_at timestamptz,
    paused_at  timestamptz,
    -- Every due tick up to and including this instant stands in the ledger.
    watermark  timestamptz NOT NULL,
    -- The first due tick after the watermark; null when there is none.
    next_tick  timestamptz
) WITH (fillfactor = 70);
CREATE INDEX forge_crons_next_tick ON forge_crons (next_tick) WHERE removed_at IS NULL;

-- The ledger: one row per due tick of each cron, and the unique key that makes
-- a double run impossible.
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
    -- A long stretch that was skipped alike is one row: tick is its first,
    -- last_tick its last and tick_count their number.
    last_tick   timestamptz,
    tick_count  bigint      NOT NULL DEFAULT 1 CHECK (tick_count >= 1),
    PRIMARY KEY (cron, tick)
);
CREATE INDEX forge_cron_ticks_tick ON forge_cron_ticks (tick);
CREATE INDEX forge_cron_ticks_job_id ON forge_cron_ticks (job_id) WHERE job_id IS NOT NULL;

-- The output of each attempt, in chunks.
CREATE TABLE forge_job_logs (
    job_id  bigint      NOT NULL,
    attempt smallint    NOT NULL,
    seq     integer     NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    stream  text        NOT NULL CHECK (stream IN ('stdout', 'stderr', 'system')),
    chunk   text        NOT NULL,
    PRIMARY KEY (job_id, attempt, seq)
);
CREATE INDEX forge_job_logs_at ON forge_job_logs (at);

-- Each node's newest snapshot of its own metrics.
CREATE TABLE forge_metrics_nodes (
    node_id     text PRIMARY KEY,
    incarnation text        NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    samples     jsonb       NOT NULL
) WITH (fillfactor = 50);

-- The cluster's totals, one row per metric, label set and instant, written by
-- the metrics aggregator's leader.
CREATE TABLE forge_metrics_cluster (
    metric text             NOT NULL,
    labels jsonb            NOT NULL DEFAULT '{}',
    at     timestamptz      NOT NULL,
    value  double precision NOT NULL,
    term   bigint           NOT NULL,
    PRIMARY KEY (metric, labels, at)
);
CREATE INDEX forge_metrics_cluster_at ON forge_metrics_cluster (at);

-- Finds scheduled and retryable jobs by due time without reading the backlog.
CREATE INDEX forge_river_job_due ON river_job (scheduled_at) WHERE state IN ('scheduled', 'retryable');
-- Finds the runs of a cron, for overlap and history.
CREATE INDEX forge_river_job_cron ON river_job ((metadata ->> 'forge:cron'), id)
    WHERE metadata ? 'forge:cron';

-- Waits at most slice for the end of the session that holds an advisory lock,
-- and says whether it has ended. Short slices keep a waiter from holding back
-- VACUUM; the time-out is caught here so that nothing is logged.
-- +goose StatementBegin
CREATE FUNCTION forge_await_session_end(class integer, object integer, slice interval) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', ceil(1000 * extract(epoch FROM slice))::text, true);
    PERFORM pg_advisory_xact_lock_shared(class, object);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION forge_await_session_end;
DROP INDEX forge_river_job_cron;
DROP INDEX forge_river_job_due;
DROP TABLE forge_metrics_cluster;
DROP TABLE forge_metrics_nodes;
DROP TABLE forge_job_logs;
DROP TABLE forge_cron_ticks;
DROP TABLE forge_crons;
DROP TABLE forge_config;
DROP TABLE forge_events;
DROP TABLE forge_leader_history;
DROP TABLE forge_leaders;
DROP TABLE forge_nodes;
