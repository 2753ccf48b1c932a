-- +goose Up

-- Functions by which programs in any language enqueue and cancel jobs, in their own
-- transactions. They run with the rights of the caller.

-- The settings of each kind in the configuration in force, for forge_enqueue. The whole
-- configuration also has the crons, and would be too large to read for each job.
CREATE TABLE forge_kinds (
    kind     text  PRIMARY KEY,
    -- The keys queue, priority, max_attempts, capability, tags, unique and schema, where set.
    settings jsonb NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION forge_refresh_kinds() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    defined jsonb := coalesce((SELECT c.settings -> 'jobs' FROM forge_config c ORDER BY c.applied_at DESC LIMIT 1), '{}');
BEGIN
    IF jsonb_typeof(defined) <> 'object' THEN
        defined := '{}';
    END IF;
    DELETE FROM forge_kinds k WHERE NOT defined ? k.kind;
    INSERT INTO forge_kinds AS k (kind, settings)
    SELECT d.key, jsonb_strip_nulls(jsonb_build_object(
        'queue', d.value -> 'queue', 'priority', d.value -> 'priority', 'max_attempts', d.value #> '{retry,max_attempts}',
        'capability', d.value -> 'capability', 'tags', d.value -> 'tags', 'unique', d.value -> 'unique'))
        || CASE WHEN d.value ? 'schema' THEN jsonb_build_object('schema', d.value -> 'schema') ELSE '{}' END
    FROM jsonb_each(defined) AS d
    ORDER BY d.key
    ON CONFLICT (kind) DO UPDATE SET settings = excluded.settings WHERE k.settings <> excluded.settings;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER forge_config_kinds AFTER INSERT OR UPDATE OF body, applied_at ON forge_config
    FOR EACH STATEMENT EXECUTE FUNCTION forge_refresh_kinds();

-- Refuses an argument of the functions below: where it is, what is wrong with it, what was
-- found and what is wanted.
-- +goose StatementBegin
CREATE FUNCTION forge_refuse(at text, problem text, got text, want text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
        MESSAGE = at || ': ' || problem || coalesce(' (got ' || CASE WHEN char_length(got) > 200 THEN left(got, 200) || '...' ELSE got END || ')', ''),
        HINT = 'Want ' || want || '.';
END
$$;
-- +goose StatementEnd

-- A text as Go's encoding/json writes it.
CREATE FUNCTION forge_json_string(value text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT replace(replace(replace(replace(replace(to_json(value)::text,
        '<', '\u003c'), '>', '\u003e'), '&', '\u0026'), U&'\2028', '\u2028'), U&'\2029', '\u2029')
$$;

-- A value as Go's encoding/json writes it, without blanks and with the names in order.
-- +goose StatementBegin
CREATE FUNCTION forge_json_text(value jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    CASE jsonb_typeof(value)
    WHEN 'object' THEN
        RETURN '{' || coalesce((SELECT string_agg(forge_json_string(e.key) || ':' || forge_json_text(e.value), ',' ORDER BY e.key COLLATE "C")
                                FROM jsonb_each(value) AS e), '') || '}';
    WHEN 'array' THEN
        RETURN '[' || coalesce((SELECT string_agg(forge_json_text(e.value), ',' ORDER BY e.n)
                                FROM jsonb_array_elements(value) WITH ORDINALITY AS e (value, n)), '') || ']';
    WHEN 'string' THEN
        RETURN forge_json_string(value #>> '{}');
    ELSE
        RETURN value::text;
    END CASE;
END
$$;
-- +goose StatementEnd

-- The arguments in River's unique keys: all, or those with the given names, of which none
-- may be there. River writes the names of the first level as they are if they are ASCII.
-- +goose StatementBegin
CREATE FUNCTION forge_unique_args(args jsonb, names text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    pairs text := (SELECT string_agg(
                          CASE WHEN e.key ~ '^[ !#-\[\]-\x7f]*$' THEN '"' || e.key || '"' ELSE forge_json_string(e.key) END
                          || ':' || forge_json_text(e.value), ',' ORDER BY e.key COLLATE "C")
                   FROM jsonb_each(args) AS e
                   WHERE names IS NULL OR e.key = ANY (names));
BEGIN
    IF pairs IS NULL AND names IS NOT NULL THEN
        RETURN '';
    END IF;
    RETURN '{' || coalesce(pairs, '') || '}';
END
$$;
-- +goose StatementEnd

-- The microseconds of a duration such as 1h30m; null if it is none.
-- +goose StatementBegin
CREATE FUNCTION forge_duration(value text) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    total numeric := 0;
    part text[];
BEGIN
    IF value IS NULL OR value !~ '^(([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})(ns|us|ms|s|m|h|d|w)){1,20}$' THEN
        RETURN CASE WHEN value = '0' THEN 0 END;
    END IF;
    FOR part IN SELECT regexp_matches(value, '([0-9.]+)([a-z]+)', 'g') LOOP
        total := total + ('0' || part[1])::numeric * CASE part[2]
            WHEN 'ns' THEN 0.001 WHEN 'us' THEN 1 WHEN 'ms' THEN 1000 WHEN 's' THEN 1000000 WHEN 'm' THEN 60000000
            WHEN 'h' THEN 3600000000 WHEN 'd' THEN 86400000000 ELSE 604800000000 END;
    END LOOP;
    RETURN total;
END
$$;
-- +goose StatementEnd

-- What a schema refuses in a value. It checks type, enum, const, required, properties,
-- additionalProperties, items and the bounds of numbers, texts and lists. Other keywords
-- refuse nothing here, and neither does a schema with $ref.
-- +goose StatementBegin
CREATE FUNCTION forge_schema_mismatches(schema jsonb, value jsonb, path text) RETURNS TABLE (at text, problem text)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    found text := jsonb_typeof(value);
    types jsonb := CASE jsonb_typeof(schema -> 'type') WHEN 'string' THEN jsonb_build_array(schema -> 'type') WHEN 'array' THEN schema -> 'type' END;
    inside record;
    size numeric;
    bound record;
BEGIN
    IF schema = 'false' THEN
        RETURN QUERY SELECT path, 'not allowed';
    END IF;
    IF jsonb_typeof(schema) IS DISTINCT FROM 'object' OR schema ? '$ref' THEN
        RETURN;
    END IF;
    IF NOT (types ? found OR found = 'number' AND types ? 'integer' AND (value #>> '{}')::numeric % 1 = 0) THEN
        RETURN QUERY SELECT path, 'wrong type (got ' || found || '); want '
            || (SELECT string_agg(t.name, ' or ' ORDER BY array_position('{"null",boolean,number,integer,string,array,object}', t.name))
                FROM jsonb_array_elements_text(types) AS t (name));
    END IF;
    IF jsonb_typeof(schema -> 'enum') = 'array' AND NOT EXISTS (SELECT FROM jsonb_array_elements(schema -> 'enum') AS e WHERE e.value = forge_schema_mismatches.value) THEN
        RETURN QUERY SELECT path, 'not one of the values (got ' || left(forge_json_text(value), 200) || '); want '
            || left((SELECT string_agg(forge_json_text(e.value), ', ' ORDER BY e.n) FROM jsonb_array_elements(schema -> 'enum') WITH ORDINALITY AS e (value, n)), 200);
    END IF;
    IF schema -> 'const' <> value THEN
        RETURN QUERY SELECT path, 'another value (got ' || left(forge_json_text(value), 200) || '); want ' || left(forge_json_text(schema -> 'const'), 200);
    END IF;

    CASE found
    WHEN 'object' THEN
        IF jsonb_typeof(schema -> 'required') = 'array' THEN
            RETURN QUERY SELECT forge_path(path, r.name), 'missing'
                FROM jsonb_array_elements_text(schema -> 'required') AS r (name) WHERE NOT value ? r.name;
        END IF;
        FOR inside IN SELECT e.key, e.value, schema #> ARRAY['properties', e.key] AS own FROM jsonb_each(value) AS e LOOP
            IF inside.own IS NOT NULL THEN
                RETURN QUERY SELECT * FROM forge_schema_mismatches(inside.own, inside.value, forge_path(path, inside.key));
            ELSIF schema ? 'patternProperties' THEN
                CONTINUE;
            ELSIF schema -> 'additionalProperties' = 'false' THEN
                RETURN QUERY SELECT forge_path(path, inside.key), 'not a name that the schema has';
            ELSIF schema ? 'additionalProperties' THEN
                RETURN QUERY SELECT * FROM forge_schema_mismatches(schema -> 'additionalProperties', inside.value, forge_path(path, inside.key));
            END IF;
        END LOOP;
        size := (SELECT count(*) FROM jsonb_object_keys(value));
    WHEN 'array' THEN
        IF schema ? 'items' AND NOT schema ? 'prefixItems' THEN
            FOR inside IN SELECT e.value, e.n FROM jsonb_array_elements(value) WITH ORDINALITY AS e (value, n) LOOP
                RETURN QUERY SELECT * FROM forge_schema_mismatches(schema -> 'items', inside.value, path || '[' || inside.n - 1 || ']');
            END LOOP;
        END IF;
        size := jsonb_array_length(value);
    WHEN 'string' THEN
        size := char_length(value #>> '{}');
    WHEN 'number' THEN
        size := (value #>> '{}')::numeric;
    ELSE
        RETURN;
    END CASE;
    FOR bound IN SELECT b.key, (b.value #>> '{}')::numeric AS most
                 FROM jsonb_each(schema) AS b
                 JOIN (VALUES ('object', 'minProperties'), ('object', 'maxProperties'), ('array', 'minItems'), ('array', 'maxItems'),
                       ('string', 'minLength'), ('string', 'maxLength'), ('number', 'minimum'), ('number', 'maximum'),
                       ('number', 'exclusiveMinimum'), ('number', 'exclusiveMaximum')) AS known (type, key) ON known.key = b.key AND known.type = found
                 WHERE jsonb_typeof(b.value) = 'number' LOOP
        IF starts_with(bound.key, 'min') AND size < bound.most OR starts_with(bound.key, 'max') AND size > bound.most
            OR bound.key = 'exclusiveMinimum' AND size <= bound.most OR bound.key = 'exclusiveMaximum' AND size >= bound.most THEN
            RETURN QUERY SELECT path, bound.key || ': got ' || size || ', want ' || bound.most;
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- The path of a name within a value.
CREATE FUNCTION forge_path(path text, name text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT path || '.' || CASE WHEN name ~ '^[A-Za-z0-9_-]+$' THEN name ELSE to_json(left(name, 200))::text END
$$;

-- Refuses args that a job cannot be given.
-- +goose StatementBegin
CREATE FUNCTION forge_check_args(at text, args jsonb, schema jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wrong text;
BEGIN
    IF jsonb_typeof(args) <> 'object' THEN
        PERFORM forge_refuse(at, 'wrong type', jsonb_typeof(args), 'a JSON object such as {"name": "Ada"}');
    ELSIF octet_length(args::text) > 65536 THEN
        PERFORM forge_refuse(at, 'too large', octet_length(args::text) || ' bytes as JSON', 'at most 64 KiB');
    ELSIF jsonb_path_exists(args, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")') THEN
        PERFORM forge_refuse(at, 'nested too deeply', NULL, 'at most 64 levels');
    ELSIF jsonb_path_exists(args, 'strict $.** ? (@.type() == "number" && (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308 || @ != 0 && @ < 2.5e-324 && @ > -2.5e-324))') THEN
        PERFORM forge_refuse(at, 'a number out of range', NULL, '1e-323 to 1.7e308, or 0');
    ELSIF schema IS NOT NULL THEN
        wrong := (SELECT string_agg(CASE WHEN m.n > 10 THEN 'and more' ELSE m.at || ': ' || m.problem END, '; ' ORDER BY m.n)
                  FROM (SELECT row_number() OVER (ORDER BY f.at COLLATE "C") AS n, f.at, f.problem
                        FROM forge_schema_mismatches(schema, args, at) AS f LIMIT 11) AS m);
        IF wrong IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = wrong,
                HINT = 'Want arguments that match the schema of the kind.';
        END IF;
    END IF;
END
$$;
-- +goose StatementEnd

-- Refuses options that do not exist, or that are of the wrong type. Returns the others without
-- those that say nothing: null, false, "" and [].
-- +goose StatementBegin
CREATE FUNCTION forge_check_opts(at text, opts jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    known CONSTANT jsonb := '{"queue": "string", "priority": "number", "max_attempts": "number", "at": "string", "delay": "string", "tags": "array",
        "metadata": "object", "unique": "string", "unique_args": "boolean", "unique_period": "string", "unique_queue": "boolean",
        "unique_states": "array", "no_unique": "boolean"}';
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
    END IF;
    RETURN given;
END
$$;
-- +goose StatementEnd

-- The time from which the job may start; null for now.
-- +goose StatementBegin
CREATE FUNCTION forge_due_at(at text, opts jsonb) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
DECLARE
    micros numeric := forge_duration(opts ->> 'delay');
    due timestamptz;
BEGIN
    IF opts ->> 'delay' IS NOT NULL THEN
        IF micros IS NULL OR micros > 366 * 86400000000 THEN
            PERFORM forge_refuse(at || '.delay', 'no duration, or a longer one than 366d', opts ->> 'delay', 'a duration such as 90s, 1h30m or 7d');
        END IF;
        RETURN CASE WHEN micros > 0 THEN now() + micros / 1000000 * interval '1 second' END;
    ELSIF opts ->> 'at' IS NULL THEN
        RETURN NULL;
    END IF;
    BEGIN
        IF opts ->> 'at' ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$' THEN
            due := opts ->> 'at';
        END IF;
    EXCEPTION WHEN data_exception THEN
        due := NULL;
    END;
    IF due IS NULL THEN
        PERFORM forge_refuse(at || '.at', 'no time with a zone', opts ->> 'at', 'a time such as 2027-01-31T09:00:00Z');
    END IF;
    RETURN CASE WHEN due > now() THEN due END;
END
$$;
-- +goose StatementEnd

-- The unique key of a job and the states in which it counts, as River computes them; null for
-- a job that need not be unique. unique, of the kind's settings, has other names than the options.
-- +goose StatementBegin
CREATE FUNCTION forge_unique_key(at text, kind text, args jsonb, opts jsonb, settings jsonb, queue text, due timestamptz,
    OUT key bytea, OUT states bit(8))
LANGUAGE plpgsql STABLE AS $$
DECLARE
    by_args jsonb := opts -> 'unique_args';
    by_period text := opts ->> 'unique_period';
    by_queue boolean := opts ? 'unique_queue';
    by_state jsonb := opts -> 'unique_states';
    base text := '&kind=' || kind;
    micros numeric;
    moment numeric;
    -- The states in the order of River's bits, and those that always count.
    ordered CONSTANT text[] := '{scheduled,running,retryable,pending,discarded,completed,cancelled,available}';
    required CONSTANT jsonb := '["available", "pending", "running", "scheduled"]';
BEGIN
    IF opts ? 'unique' THEN
        key := sha256(convert_to('forge:' || kind, 'UTF8') || '\x00'::bytea || convert_to(opts ->> 'unique', 'UTF8'));
        states := B'11110101';
        RETURN;
    ELSIF opts ? 'no_unique' THEN
        RETURN;
    ELSIF by_args IS NULL AND by_period IS NULL AND NOT by_queue AND by_state IS NULL THEN
        by_args := nullif(settings #> '{unique,by_args}', 'false');
        by_period := settings #>> '{unique,by_period}';
        by_queue := coalesce((settings #>> '{unique,by_queue}')::boolean, false);
        by_state := nullif(settings #> '{unique,by_state}', '[]');
        IF by_args IS NULL AND by_period IS NULL AND NOT by_queue AND by_state IS NULL THEN
            RETURN;
        END IF;
    END IF;

    IF by_args IS NOT NULL THEN
        base := base || '&args=' || forge_unique_args(args,
            CASE jsonb_typeof(by_args) WHEN 'array' THEN ARRAY (SELECT jsonb_array_elements_text(by_args)) END);
    END IF;
    IF by_period IS NOT NULL THEN
        micros := forge_duration(by_period);
        IF micros IS NULL OR micros < 1000000 OR micros > 366 * 86400000000 THEN
            PERFORM forge_refuse(at || '.unique_period', 'no duration, or out of range', by_period, '1s to 366d');
        END IF;
        -- Go counts periods from the year 1.
        moment := extract(epoch FROM coalesce(due, now()))::numeric * 1000000 + 62135596800000000;
        moment := moment - moment % micros - 62135596800000000;
        base := base || '&period=' || to_char(timestamp 'epoch' + floor(moment / 1000000) * interval '1 second', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');
    END IF;
    IF by_queue THEN
        base := base || '&queue=' || queue;
    END IF;
    IF by_state IS NULL THEN
        states := B'11110101';
    ELSIF NOT by_state <@ to_jsonb(ordered) OR NOT by_state @> required THEN
        PERFORM forge_refuse(at || '.unique_states', 'unknown states, or without those that always count', by_state::text,
            'available, pending, running and scheduled, and any of retryable, completed, cancelled and discarded');
    ELSE
        states := (SELECT string_agg(CASE WHEN by_state ? s.name THEN '1' ELSE '0' END, '' ORDER BY s.n)
                   FROM unnest(ordered) WITH ORDINALITY AS s (name, n))::bit(8);
    END IF;
    key := sha256(convert_to(base, 'UTF8'));
END
$$;
-- +goose StatementEnd

-- The metadata of a job: the caller's, and what forge needs from the kind's settings.
-- +goose StatementBegin
CREATE FUNCTION forge_job_metadata(at text, opts jsonb, settings jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    own jsonb := coalesce(opts -> 'metadata', '{}');
    reserved text := (SELECT min(k) FROM jsonb_object_keys(own) AS k WHERE starts_with(k, 'forge:') OR starts_with(k, 'river:') OR k = 'cancel_attempted_at');
BEGIN
    IF reserved IS NOT NULL THEN
        PERFORM forge_refuse(at || '.metadata', 'a reserved name', reserved, 'names other than cancel_attempted_at and those that begin with forge: or river:');
    ELSIF octet_length(own::text) > 65536 THEN
        PERFORM forge_refuse(at || '.metadata', 'too large', octet_length(own::text) || ' bytes as JSON', 'at most 64 KiB');
    END IF;
    RETURN own || jsonb_strip_nulls(jsonb_build_object('forge:capability', nullif(settings -> 'capability', '""'),
                                                       'forge:tags', nullif(settings -> 'tags', '{}')));
END
$$;
-- +goose StatementEnd

-- A whole number among the options, else fallback.
-- +goose StatementBegin
CREATE FUNCTION forge_whole_option(at text, opts jsonb, name text, most integer, fallback integer) RETURNS integer
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    given numeric := (opts ->> name)::numeric;
BEGIN
    IF given % 1 <> 0 OR given NOT BETWEEN 1 AND most THEN
        PERFORM forge_refuse(at || '.' || name, 'out of range', given::text, 'a whole number from 1 to ' || most);
    END IF;
    RETURN coalesce(given, fallback);
END
$$;
-- +goose StatementEnd

-- Checks and inserts a job. at says where the job stands in the caller's arguments.
-- +goose StatementBegin
CREATE FUNCTION forge_insert_job(at text, new_kind text, new_args jsonb, opts jsonb, OUT job_id bigint, OUT is_duplicate boolean)
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
    due := forge_due_at(options, opts);
    new_job.state := CASE WHEN due IS NULL THEN 'available' ELSE 'scheduled' END;
    new_job.scheduled_at := coalesce(due, now());
    uniqueness := forge_unique_key(options, new_kind, new_args, opts, settings, new_queue, due);

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
    IF due IS NULL AND NOT is_duplicate THEN
        PERFORM pg_notify(current_schema() || '.river_insert', json_build_object('queue', new_queue, 'from', now())::text);
    END IF;
END
$$;
-- +goose StatementEnd

-- Enqueues a job and returns its id, or the id of the job that equals it and exists. The job
-- is there when the transaction commits, and never if it does not.
CREATE FUNCTION forge_enqueue(kind text, args jsonb DEFAULT '{}', opts jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE sql AS $$
    SELECT job_id FROM forge_insert_job('', kind, args, opts)
$$;

-- Enqueues up to 1,000 jobs, each an object with kind, args and the options of forge_enqueue.
-- Returns a row for each, in order. If one is refused, none is inserted.
-- +goose StatementBegin
CREATE FUNCTION forge_enqueue_many(jobs jsonb) RETURNS TABLE (id bigint, existing boolean)
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
        SELECT i.job_id, i.is_duplicate INTO id, existing
        FROM forge_insert_job(job.at, job.value ->> 'kind', job.value -> 'args', job.value - 'kind' - 'args') AS i;
        RETURN NEXT;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Cancels a job when the transaction commits. A job that runs is told to stop. Returns false
-- for a job that has ended or does not exist.
-- +goose StatementBegin
CREATE FUNCTION forge_cancel(id bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    job record;
BEGIN
    SELECT j.state, j.kind, j.queue INTO job FROM river_job j WHERE j.id = forge_cancel.id FOR NO KEY UPDATE;
    IF NOT FOUND OR job.state IN ('completed', 'cancelled', 'discarded') THEN
        RETURN false;
    END IF;
    UPDATE river_job AS j
    SET state = CASE WHEN j.state = 'running' THEN j.state ELSE 'cancelled' END,
        finalized_at = CASE WHEN j.state = 'running' THEN j.finalized_at ELSE now() END,
        metadata = jsonb_set(j.metadata, '{cancel_attempted_at}', to_jsonb(now()), true)
    WHERE j.id = forge_cancel.id;
    IF job.state = 'running' THEN
        PERFORM pg_notify(current_schema() || '.river_control',
            json_build_object('action', 'cancel', 'job_id', forge_cancel.id, 'queue', job.queue)::text);
    END IF;
    INSERT INTO forge_events (type, data)
    VALUES ('job_cancelled', jsonb_build_object('ids', jsonb_build_array(forge_cancel.id), 'jobs', 1, 'by', 'sql:' || session_user));
    RETURN true;
END
$$;
-- +goose StatementEnd

-- The functions work whatever the caller's search_path is.
-- +goose StatementBegin
DO $$
DECLARE
    one regprocedure;
BEGIN
    FOR one IN SELECT p.oid FROM pg_proc p
               WHERE p.pronamespace = current_schema()::regnamespace
                 AND p.proname IN ('forge_refresh_kinds', 'forge_enqueue', 'forge_enqueue_many', 'forge_cancel')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', one, current_schema());
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Settings of the kinds in force.
UPDATE forge_config SET applied_at = applied_at WHERE hash = (SELECT hash FROM forge_config ORDER BY applied_at DESC LIMIT 1);

-- +goose Down
DROP TRIGGER forge_config_kinds ON forge_config;
DROP FUNCTION forge_cancel, forge_enqueue_many, forge_enqueue, forge_insert_job, forge_whole_option, forge_job_metadata, forge_unique_key,
    forge_due_at, forge_check_opts, forge_check_args, forge_schema_mismatches, forge_path, forge_duration, forge_unique_args,
    forge_json_text, forge_json_string, forge_refuse, forge_refresh_kinds;
DROP TABLE forge_kinds;
