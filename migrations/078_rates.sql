-- +goose Up

-- Rates: in any window of the length per, jobs of a queue or kind start with at most so many
-- units. Scopes with the suffix _rate have them, with or without a key. With burst, at most so
-- many units also start in any window of the length per * burst / most. The scope weight has
-- the units of a job of a kind.
ALTER TABLE forge_limits DROP CONSTRAINT forge_limits_scope_check;
ALTER TABLE forge_limits
    ADD CONSTRAINT forge_limits_scope_check CHECK (scope IN ('queue', 'job', 'queue_all', 'job_all', 'queue_key', 'job_key',
        'queue_rate', 'job_rate', 'weight')),
    ADD COLUMN per   interval,
    ADD COLUMN burst integer;

-- The starts that still count, for each rate and value of its key: of each hundredth of a window,
-- the time of its last start and the units of all. A claim changes the row in its transaction,
-- under the lock of the rate and value. Rows of which nothing counts are deleted.
CREATE TABLE forge_rate_windows (
    scope        text          NOT NULL,
    name         text          NOT NULL,
    key          text          NOT NULL,
    starts       timestamptz[] NOT NULL,
    units        bigint[]      NOT NULL,
    -- The same with hundredths of the window of the burst.
    burst_starts timestamptz[] NOT NULL,
    burst_units  bigint[]      NOT NULL,
    -- When nothing of the row counts any more.
    idle_at      timestamptz   NOT NULL,
    PRIMARY KEY (scope, name, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- The length of the window of a burst: never too short by rounding.
CREATE FUNCTION forge_burst_span(most integer, per interval, burst integer) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE COST 1
RETURN per * (burst::float8 / most) + interval '1 microsecond';

-- The units that count at an instant: those within a window before it. The clock may have been
-- set back, so those within a window after it count, too.
CREATE FUNCTION forge_rate_used(starts timestamptz[], units bigint[], span interval, at timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT coalesce(sum(w.n), 0)::bigint FROM unnest(starts, units) AS w (start, n) WHERE w.start BETWEEN at - span AND at + span
$$;

-- Adds the units of starts at an instant, and removes those that do not count any more. Starts in
-- one hundredth of the window become one at the time of the last, so they count for too long
-- rather than too short.
CREATE FUNCTION forge_rate_add(INOUT starts timestamptz[], INOUT units bigint[], added bigint, span interval, at timestamptz)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT array_agg(b.start ORDER BY b.start), array_agg(b.n ORDER BY b.start)
    FROM (
        SELECT max(w.start) AS start, sum(w.n)::bigint AS n
        FROM (SELECT * FROM unnest(starts, units) AS known (start, n) WHERE known.start >= at - span
              UNION ALL SELECT at, added) AS w
        GROUP BY floor(extract(epoch FROM w.start) * 100 / extract(epoch FROM span))) AS b
$$;

-- The units of a job: its own, or those of its kind.
CREATE FUNCTION forge_job_weight(metadata jsonb, of_kind integer) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE COST 1
RETURN CASE WHEN jsonb_typeof(metadata -> 'forge:weight') = 'number' AND metadata ->> 'forge:weight' ~ '^[1-9][0-9]{0,8}$'
    THEN (metadata ->> 'forge:weight')::bigint ELSE coalesce(of_kind, 1) END;

-- +goose Down
DROP FUNCTION forge_job_weight, forge_rate_add, forge_rate_used, forge_burst_span;
DROP TABLE forge_rate_windows;
DELETE FROM forge_limits WHERE scope IN ('queue_rate', 'job_rate', 'weight');
ALTER TABLE forge_limits DROP CONSTRAINT forge_limits_scope_check, DROP COLUMN per, DROP COLUMN burst;
ALTER TABLE forge_limits
    ADD CONSTRAINT forge_limits_scope_check CHECK (scope IN ('queue', 'job', 'queue_all', 'job_all', 'queue_key', 'job_key'));
