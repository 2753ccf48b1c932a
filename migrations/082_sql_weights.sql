-- +goose Up

-- forge_enqueue and forge_enqueue_many have the option weight, and the jobs that they add are
-- counted in forge_job_enqueued_total.

-- What calls of these functions have added, until a node counts it. Each call writes rows of its
-- own: those of forge_enqueued would make transactions wait for each other.
CREATE TABLE forge_sql_enqueued (
    id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text   NOT NULL,
    jobs bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- Records the kinds of added jobs. A login that may not insert there enqueues nevertheless.
-- +goose StatementBegin
CREATE FUNCTION forge_note_enqueued(kinds text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF has_table_privilege('forge_sql_enqueued', 'INSERT') THEN
        INSERT INTO forge_sql_enqueued (kind, jobs)
        SELECT k.kind, count(*) FROM unnest(kinds) AS k (kind) GROUP BY k.kind;
    END IF;
END
$$;
-- +goose StatementEnd

-- The metadata for the option weight. Refuses a weight with which the job would never start: one
-- that a rate of its queue or kind never has at once.
-- +goose StatementBegin
CREATE FUNCTION forge_job_units(at text, opts jsonb, queue text, kind text) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    weight integer := forge_whole_option(at, opts, 'weight', 1000000, NULL);
    rate record;
BEGIN
    IF weight IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT split_part(l.scope, '_', 1) AS base, l.name, least(l.most, l.burst) AS most INTO rate
    FROM forge_limits AS l
    WHERE (l.scope = 'job_rate' AND l.name = forge_job_units.kind OR l.scope = 'queue_rate' AND l.name = forge_job_units.queue)
      AND least(l.most, l.burst) < weight
    ORDER BY l.scope LIMIT 1;
    IF FOUND THEN
        PERFORM forge_refuse(at || '.weight', 'more units than the rate_limit of ' || rate.base || ' ' || rate.name || ' ever has at once',
            weight::text, 'at most ' || rate.most);
    END IF;
    RETURN jsonb_build_object('forge:weight', weight);
END
$$;
-- +goose StatementEnd

-- As before, and with the option weight.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forge_check_opts(at text, opts jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    known CONSTANT jsonb := '{"queue": "string", "priority": "number", "max_attempts": "number", "at": "string", "delay": "string", "tags": "array",
        "metadata": "object", "unique": "string", "unique_args": "boolean", "unique_period": "string", "unique_queue": "boolean",
        "unique_states": "array", "no_unique": "boolean", "replace": "boolean", "debounce": "string", "max_wait": "string", "throttle": "string",
        "weight": "number"}';
    -- What other queues call them.
    alias CONSTANT jsonb := '{"scheduled_at": "at", "run_at": "at", "eta": "at", "schedule_in": "delay", "countdown": "delay", "queue_name": "queue",
        "job_key": "unique", "unique_key": "unique", "attempts": "max_attempts", "max_retries": "max_attempts"}';
    given jsonb := '{}';
    option record;
    by_parts boolean;
BEGIN
    IF jsonb_typeof(opts) <> 'object' THEN
        PERFORM forge_refuse(at, 'wrong type', jsonb_typeof(opts), 'an object such as {"queue": "mail"}');
    END IF;
    FOR option IN SELECT o.key, jsonb_typeof(o.value) AS found, o.value FROM jsonb_each(opts) AS o LOOP
        IF NOT known ? option.key THEN
            PERFORM forge_refuse(forge_path(at, option.key), 'no such option', NULL, coalesce(alias ->> option.key,
                (SELECT 'one of ' || string_agg(k.key, ', ' ORDER BY k.key) FROM jsonb_each(known) AS k)));
        ELSIF option.value IN ('null', 'false', '""', '[]') THEN
            CONTINUE;
        ELSIF option.found <> known ->> option.key AND NOT (option.key = 'unique_args' AND option.found = 'array') THEN
            PERFORM forge_refuse(forge_path(at, option.key), 'wrong type', option.found,
                CASE option.key WHEN 'unique_args' THEN 'true, or an array of names' ELSE known ->> option.key END);
        ELSIF option.found = 'array' AND jsonb_path_exists(option.value, 'strict $[*] ? (@.type() != "string")') THEN
            PERFORM forge_refuse(forge_path(at, option.key), 'wrong type', option.value::text, 'an array of strings');
        END IF;
        given := jsonb_set(given, ARRAY[option.key], option.value);
    END LOOP;
    by_parts := given ?| '{unique_args,unique_period,unique_queue,unique_states}';
    IF (given ? 'unique')::int + (given ? 'no_unique')::int + by_parts::int > 1 THEN
        PERFORM forge_refuse(at, 'options that exclude each other', NULL, 'only one of unique, no_unique and the other unique_ options');
    ELSIF given ? 'at' AND given ? 'delay' THEN
        PERFORM forge_refuse(at, 'options that exclude each other', NULL, 'only one of at and delay');
    ELSIF (given ? 'replace')::int + (given ? 'debounce')::int + (given ? 'throttle')::int > 1 THEN
        PERFORM forge_refuse(at, 'options that exclude each other', NULL, 'only one of replace, debounce and throttle');
    ELSIF given ?| '{replace,debounce,throttle}' AND given ?| '{no_unique,unique_period,unique_states}' THEN
        PERFORM forge_refuse(at, 'options that exclude each other', NULL, 'replace, debounce and throttle only with unique, or with unique_args and unique_queue');
    ELSIF given ? 'max_wait' AND NOT given ? 'debounce' THEN
        PERFORM forge_refuse(at || '.max_wait', 'without debounce', given ->> 'max_wait', 'debounce too');
    END IF;
    RETURN given;
END
$$;
-- +goose StatementEnd

-- As before, and with the units of the job.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forge_insert_job(at text, new_kind text, new_args jsonb, opts jsonb, OUT job_id bigint, OUT is_duplicate boolean, OUT verdict text)
LANGUAGE plpgsql AS $$
DECLARE
    options text := CASE at WHEN '' THEN 'opts' ELSE at END;
    inside text := CASE at WHEN '' THEN '' ELSE at || '.' END;
    settings jsonb;
    new_queue text;
    tag text;
    due timestamptz;
    new_job river_job;
    uniqueness record;
    duplicates record;
    inserted record;
BEGIN
    new_args := coalesce(nullif(new_args, 'null'), '{}');
    IF new_kind IS NULL OR char_length(new_kind) NOT BETWEEN 1 AND 127 OR new_kind ~ '[[:cntrl:]]' THEN
        PERFORM forge_refuse(inside || 'kind', 'no name of a kind', quote_nullable(new_kind), '1 to 127 printable characters');
    END IF;
    settings := (SELECT k.settings FROM forge_kinds k WHERE k.kind = new_kind);
    PERFORM forge_check_args(inside || 'args', new_args, settings -> 'schema');
    opts := forge_check_opts(options, coalesce(nullif(opts, 'null'), '{}'));

    new_queue := coalesce(opts ->> 'queue', settings ->> 'queue', 'default');
    IF new_queue !~ '^[a-zA-Z0-9]+([_-][a-zA-Z0-9]+)*$' OR char_length(new_queue) > 64 THEN
        PERFORM forge_refuse(options || '.queue', 'no name of a queue', new_queue, 'at most 64 letters and digits, with single - or _ between them');
    END IF;
    new_job.tags := ARRAY (SELECT jsonb_array_elements_text(coalesce(opts -> 'tags', '[]')));
    tag := (SELECT min(t) FROM unnest(new_job.tags) AS t WHERE t !~ '^[A-Za-z0-9_][A-Za-z0-9_-]+[A-Za-z0-9_]$' OR char_length(t) > 255);
    IF tag IS NOT NULL OR cardinality(new_job.tags) > 100 THEN
        PERFORM forge_refuse(options || '.tags', 'no tag, or too many', coalesce(tag, cardinality(new_job.tags)::text),
            'at most 100 tags, each of 3 to 255 letters, digits, - and _, with neither end a -');
    END IF;
    new_job.priority := forge_whole_option(options, opts, 'priority', 4, coalesce((settings ->> 'priority')::integer, 1));
    new_job.max_attempts := forge_whole_option(options, opts, 'max_attempts', 1000, coalesce((settings ->> 'max_attempts')::integer, 25));
    new_job.metadata := forge_job_metadata(options, opts, settings) || forge_job_units(options, opts, new_queue, new_kind);
    duplicates := forge_duplicate_rule(options, opts, settings);
    due := forge_due_at(options, opts);
    new_job.state := CASE WHEN due IS NULL THEN 'available' ELSE 'scheduled' END;
    new_job.scheduled_at := coalesce(due, now());
    uniqueness := forge_unique_key(options, new_kind, new_args, duplicates.key_opts, settings, new_queue, due);

    IF duplicates.rule IS NOT NULL THEN
        new_job.args := new_args;
        new_job.kind := new_kind;
        new_job.queue := new_queue;
        new_job.unique_key := uniqueness.key;
        inserted := forge_insert_deduplicated(new_job, duplicates.rule, ARRAY (SELECT jsonb_object_keys(opts)));
        job_id := (inserted.job).id;
        verdict := inserted.verdict;
        is_duplicate := verdict <> 'added';
        RETURN;
    END IF;
    IF uniqueness.key IS NULL THEN
        INSERT INTO river_job AS j (args, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags)
        VALUES (new_args, new_kind, new_job.max_attempts, new_job.metadata, new_job.priority, new_queue, new_job.scheduled_at, new_job.state, new_job.tags)
        RETURNING j.id, false INTO job_id, is_duplicate;
    ELSE
        -- The existing row does not change, but is returned.
        INSERT INTO river_job AS j (args, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags, unique_key, unique_states)
        VALUES (new_args, new_kind, new_job.max_attempts, new_job.metadata, new_job.priority, new_queue, new_job.scheduled_at, new_job.state, new_job.tags, uniqueness.key, uniqueness.states)
        ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL AND river_job_state_in_bitmask(unique_states, state)
        DO UPDATE SET kind = j.kind
        RETURNING j.id, j.xmax <> 0 INTO job_id, is_duplicate;
    END IF;
    verdict := CASE WHEN is_duplicate THEN 'duplicate' ELSE 'added' END;
    IF due IS NULL AND NOT is_duplicate THEN
        PERFORM pg_notify(current_schema() || '.river_insert', json_build_object('queue', new_queue, 'from', now())::text);
    END IF;
END
$$;
-- +goose StatementEnd

-- As before, and counted.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forge_enqueue(kind text, args jsonb DEFAULT '{}', opts jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    added record := forge_insert_job('', kind, args, opts);
BEGIN
    IF added.verdict = 'added' THEN
        PERFORM forge_note_enqueued(ARRAY[kind]);
    END IF;
    RETURN added.job_id;
END
$$;
-- +goose StatementEnd

-- As before, and counted.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forge_enqueue_many(jobs jsonb) RETURNS TABLE (id bigint, existing boolean, verdict text)
LANGUAGE plpgsql AS $$
DECLARE
    job record;
    added text[];
BEGIN
    IF jobs IS NULL OR jsonb_typeof(jobs) <> 'array' THEN
        PERFORM forge_refuse('jobs', 'wrong type', coalesce(jsonb_typeof(jobs), 'NULL'), 'an array such as [{"kind": "report", "args": {}}]');
    ELSIF jsonb_array_length(jobs) > 1000 THEN
        PERFORM forge_refuse('jobs', 'too many', jsonb_array_length(jobs)::text, 'at most 1000 a call');
    END IF;
    FOR job IN SELECT j.value, 'jobs[' || j.n - 1 || ']' AS at FROM jsonb_array_elements(jobs) WITH ORDINALITY AS j (value, n) ORDER BY j.n LOOP
        IF jsonb_typeof(job.value) <> 'object' THEN
            PERFORM forge_refuse(job.at, 'wrong type', jsonb_typeof(job.value), 'an object such as {"kind": "report", "args": {}}');
        ELSIF jsonb_typeof(job.value -> 'kind') <> 'string' THEN
            PERFORM forge_refuse(job.at || '.kind', 'wrong type', jsonb_typeof(job.value -> 'kind'), 'string');
        END IF;
        SELECT i.job_id, i.is_duplicate, i.verdict INTO id, existing, verdict
        FROM forge_insert_job(job.at, job.value ->> 'kind', job.value -> 'args', job.value - 'kind' - 'args') AS i;
        IF verdict = 'added' THEN
            added := added || (job.value ->> 'kind');
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM forge_note_enqueued(added);
END
$$;
-- +goose StatementEnd

-- Both work whatever the caller's search_path is.
-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION forge_enqueue SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION forge_enqueue_many SET search_path = %I, pg_temp', current_schema());
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forge_check_opts(at text, opts jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    known CONSTANT jsonb := '{"queue": "string", "priority": "number", "max_attempts": "number", "at": "string", "delay": "string", "tags": "array",
        "metadata": "object", "unique": "string", "unique_args": "boolean", "unique_period": "string", "unique_queue": "boolean",
        "unique_states": "array", "no_unique": "boolean", "replace": "boolean", "debounce": "string", "max_wait": "string", "throttle": "string"}';
    -- What other queues call them.
    alias CONSTANT jsonb := '{"scheduled_at": "at", "run_at": "at", "eta": "at", "schedule_in": "delay", "countdown": "delay", "queue_name": "queue",
        "job_key": "unique", "unique_key": "unique", "attempts": "max_attempts", "max_retries": "max_attempts"}';
    given jsonb := '{}';
    option record;
    by_parts boolean;
BEGIN
    IF jsonb_typeof(opts) <> 'object' THEN
        PERFORM forge_refuse(at, 'wrong type', jsonb_typeof(opts), 'an object such as {"queue": "mail"}');
    END IF;
    FOR option IN SELECT o.key, jsonb_typeof(o.value) AS found, o.value FROM jsonb_each(opts) AS o LOOP
        IF NOT known ? option.key THEN
            PERFORM forge_refuse(forge_path(at, option.key), 'no such option', NULL, coalesce(alias ->> option.key,
                (SELECT 'one of ' || string_agg(k.key, ', ' ORDER BY k.key) FROM jsonb_each(known) AS k)));
        ELSIF option.value IN ('null', 'false', '""', '[]') THEN
            CONTINUE;
        ELSIF option.found <> known ->> option.key AND NOT (option.key = 'unique_args' AND option.found = 'array') THEN
            PERFORM forge_refuse(forge_path(at, option.key), 'wrong type', option.found,
                CASE option.key WHEN 'unique_args' THEN 'true, or an array of names' ELSE known ->> option.key END);
        ELSIF option.found = 'array' AND jsonb_path_exists(option.value, 'strict $[*] ? (@.type() != "string")') THEN
            PERFORM forge_refuse(forge_path(at, option.key), 'wrong type', option.value::text, 'an array of strings');
        END IF;
        given := jsonb_set(given, ARRAY[option.key], option.value);
    END LOOP;
    by_parts := given ?| '{unique_args,unique_period,unique_queue,unique_states}';
    IF (given ? 'unique')::int + (given ? 'no_unique')::int + by_parts::int > 1 THEN
        PERFORM forge_refuse(at, 'options that exclude each other', NULL, 'only one of unique, no_unique and the other unique_ options');
    ELSIF given ? 'at' AND given ? 'delay' THEN
        PERFORM forge_refuse(at, 'options that exclude each other', NULL, 'only one of at and delay');
    ELSIF (given ? 'replace')::int + (given ? 'debounce')::int + (given ? 'throttle')::int > 1 THEN
        PERFORM forge_refuse(at, 'options that exclude each other', NULL, 'only one of replace, debounce and throttle');
    ELSIF given ?| '{replace,debounce,throttle}' AND given ?| '{no_unique,unique_period,unique_states}' THEN
        PERFORM forge_refuse(at, 'options that exclude each other', NULL, 'replace, debounce and throttle only with unique, or with unique_args and unique_queue');
    ELSIF given ? 'max_wait' AND NOT given ? 'debounce' THEN
        PERFORM forge_refuse(at || '.max_wait', 'without debounce', given ->> 'max_wait', 'debounce too');
    END IF;
    RETURN given;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forge_insert_job(at text, new_kind text, new_args jsonb, opts jsonb, OUT job_id bigint, OUT is_duplicate boolean, OUT verdict text)
LANGUAGE plpgsql AS $$
DECLARE
    options text := CASE at WHEN '' THEN 'opts' ELSE at END;
    inside text := CASE at WHEN '' THEN '' ELSE at || '.' END;
    settings jsonb;
    new_queue text;
    tag text;
    due timestamptz;
    new_job river_job;
    uniqueness record;
    duplicates record;
    inserted record;
BEGIN
    new_args := coalesce(nullif(new_args, 'null'), '{}');
    IF new_kind IS NULL OR char_length(new_kind) NOT BETWEEN 1 AND 127 OR new_kind ~ '[[:cntrl:]]' THEN
        PERFORM forge_refuse(inside || 'kind', 'no name of a kind', quote_nullable(new_kind), '1 to 127 printable characters');
    END IF;
    settings := (SELECT k.settings FROM forge_kinds k WHERE k.kind = new_kind);
    PERFORM forge_check_args(inside || 'args', new_args, settings -> 'schema');
    opts := forge_check_opts(options, coalesce(nullif(opts, 'null'), '{}'));

    new_queue := coalesce(opts ->> 'queue', settings ->> 'queue', 'default');
    IF new_queue !~ '^[a-zA-Z0-9]+([_-][a-zA-Z0-9]+)*$' OR char_length(new_queue) > 64 THEN
        PERFORM forge_refuse(options || '.queue', 'no name of a queue', new_queue, 'at most 64 letters and digits, with single - or _ between them');
    END IF;
    new_job.tags := ARRAY (SELECT jsonb_array_elements_text(coalesce(opts -> 'tags', '[]')));
    tag := (SELECT min(t) FROM unnest(new_job.tags) AS t WHERE t !~ '^[A-Za-z0-9_][A-Za-z0-9_-]+[A-Za-z0-9_]$' OR char_length(t) > 255);
    IF tag IS NOT NULL OR cardinality(new_job.tags) > 100 THEN
        PERFORM forge_refuse(options || '.tags', 'no tag, or too many', coalesce(tag, cardinality(new_job.tags)::text),
            'at most 100 tags, each of 3 to 255 letters, digits, - and _, with neither end a -');
    END IF;
    new_job.priority := forge_whole_option(options, opts, 'priority', 4, coalesce((settings ->> 'priority')::integer, 1));
    new_job.max_attempts := forge_whole_option(options, opts, 'max_attempts', 1000, coalesce((settings ->> 'max_attempts')::integer, 25));
    new_job.metadata := forge_job_metadata(options, opts, settings);
    duplicates := forge_duplicate_rule(options, opts, settings);
    due := forge_due_at(options, opts);
    new_job.state := CASE WHEN due IS NULL THEN 'available' ELSE 'scheduled' END;
    new_job.scheduled_at := coalesce(due, now());
    uniqueness := forge_unique_key(options, new_kind, new_args, duplicates.key_opts, settings, new_queue, due);

    IF duplicates.rule IS NOT NULL THEN
        new_job.args := new_args;
        new_job.kind := new_kind;
        new_job.queue := new_queue;
        new_job.unique_key := uniqueness.key;
        inserted := forge_insert_deduplicated(new_job, duplicates.rule, ARRAY (SELECT jsonb_object_keys(opts)));
        job_id := (inserted.job).id;
        verdict := inserted.verdict;
        is_duplicate := verdict <> 'added';
        RETURN;
    END IF;
    IF uniqueness.key IS NULL THEN
        INSERT INTO river_job AS j (args, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags)
        VALUES (new_args, new_kind, new_job.max_attempts, new_job.metadata, new_job.priority, new_queue, new_job.scheduled_at, new_job.state, new_job.tags)
        RETURNING j.id, false INTO job_id, is_duplicate;
    ELSE
        -- The existing row does not change, but is returned.
        INSERT INTO river_job AS j (args, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags, unique_key, unique_states)
        VALUES (new_args, new_kind, new_job.max_attempts, new_job.metadata, new_job.priority, new_queue, new_job.scheduled_at, new_job.state, new_job.tags, uniqueness.key, uniqueness.states)
        ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL AND river_job_state_in_bitmask(unique_states, state)
        DO UPDATE SET kind = j.kind
        RETURNING j.id, j.xmax <> 0 INTO job_id, is_duplicate;
    END IF;
    verdict := CASE WHEN is_duplicate THEN 'duplicate' ELSE 'added' END;
    IF due IS NULL AND NOT is_duplicate THEN
        PERFORM pg_notify(current_schema() || '.river_insert', json_build_object('queue', new_queue, 'from', now())::text);
    END IF;
END
$$;
-- +goose StatementEnd
CREATE OR REPLACE FUNCTION forge_enqueue(kind text, args jsonb DEFAULT '{}', opts jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE sql AS $$
    SELECT job_id FROM forge_insert_job('', kind, args, opts)
$$;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forge_enqueue_many(jobs jsonb) RETURNS TABLE (id bigint, existing boolean, verdict text)
LANGUAGE plpgsql AS $$
DECLARE
    job record;
BEGIN
    IF jobs IS NULL OR jsonb_typeof(jobs) <> 'array' THEN
        PERFORM forge_refuse('jobs', 'wrong type', coalesce(jsonb_typeof(jobs), 'NULL'), 'an array such as [{"kind": "report", "args": {}}]');
    ELSIF jsonb_array_length(jobs) > 1000 THEN
        PERFORM forge_refuse('jobs', 'too many', jsonb_array_length(jobs)::text, 'at most 1000 a call');
    END IF;
    FOR job IN SELECT j.value, 'jobs[' || j.n - 1 || ']' AS at FROM jsonb_array_elements(jobs) WITH ORDINALITY AS j (value, n) ORDER BY j.n LOOP
        IF jsonb_typeof(job.value) <> 'object' THEN
            PERFORM forge_refuse(job.at, 'wrong type', jsonb_typeof(job.value), 'an object such as {"kind": "report", "args": {}}');
        ELSIF jsonb_typeof(job.value -> 'kind') <> 'string' THEN
            PERFORM forge_refuse(job.at || '.kind', 'wrong type', jsonb_typeof(job.value -> 'kind'), 'string');
        END IF;
        SELECT i.job_id, i.is_duplicate, i.verdict INTO id, existing, verdict
        FROM forge_insert_job(job.at, job.value ->> 'kind', job.value -> 'args', job.value - 'kind' - 'args') AS i;
        RETURN NEXT;
    END LOOP;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION forge_enqueue SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION forge_enqueue_many SET search_path = %I, pg_temp', current_schema());
END
$$;
-- +goose StatementEnd
DROP FUNCTION forge_job_units, forge_note_enqueued;
DROP TABLE forge_sql_enqueued;
