-- +goose Up

-- What becomes of a job that equals a waiting job, or that comes soon after an equal one:
-- replace and debounce give the waiting job the new arguments, throttle drops the new job.

-- The last accepted job of each key, for throttle. A row is deleted when its period is over: the
-- retention of jobs may be shorter.
CREATE TABLE forge_throttles (
    key         bytea       PRIMARY KEY,
    job_id      bigint      NOT NULL,
    accepted_at timestamptz NOT NULL,
    until       timestamptz NOT NULL
);
CREATE INDEX forge_throttles_until ON forge_throttles (until);

-- Inserts a job with a unique key by one of the rules {"replace": true},
-- {"debounce": "5s", "max_wait": "1m"} and {"throttle": "10m"}. given has the names of what the
-- caller has set: at, delay, priority, max_attempts or tags also replace those of a waiting job.
--
-- With replace and debounce a job holds its key while it waits, and never again once it has
-- started. The insert locks the waiting job, so another insert and the claim of the job wait
-- until this transaction ends, and then see what it has done. If a claim comes first, the key is
-- free and the new job is inserted. A key that is held by a job that does not wait, by another
-- rule, is taken from it.
--
-- verdict is added, replaced, debounced or throttled. The metadata of the returned job has it
-- too, for Go: it is not stored.
-- +goose StatementBegin
CREATE FUNCTION forge_insert_deduplicated(new_job river_job, rule jsonb, given text[],
    OUT job river_job, OUT verdict text, OUT accepts_at timestamptz)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    period interval := forge_duration(coalesce(rule ->> 'debounce', rule ->> 'throttle')) / 1000000 * interval '1 second';
    max_wait interval := coalesce(forge_duration(rule ->> 'max_wait') / 1000000 * interval '1 second', 10 * period);
    moved boolean := rule ? 'replace' AND given && '{at,delay}';
    waiting CONSTANT bit(8) := B'10010001'; -- scheduled, pending and available
    last forge_throttles;
BEGIN
    new_job.id := coalesce(new_job.id, nextval('river_job_id_seq'));
    new_job.unique_states := waiting;
    IF rule ? 'debounce' THEN
        new_job.state := 'scheduled';
        new_job.scheduled_at := clock_timestamp() + least(period, max_wait);
    ELSIF rule ? 'throttle' THEN
        SELECT t.* INTO last FROM forge_throttles t WHERE t.key = new_job.unique_key;
        IF last.accepted_at + period > clock_timestamp() THEN
            verdict := 'throttled';
        ELSE
            INSERT INTO forge_throttles AS t (key, job_id, accepted_at, until)
            VALUES (new_job.unique_key, new_job.id, clock_timestamp(), clock_timestamp() + period)
            ON CONFLICT (key) DO UPDATE
            SET job_id = excluded.job_id, accepted_at = clock_timestamp(), until = clock_timestamp() + period
            WHERE t.accepted_at + period <= clock_timestamp();
            IF NOT FOUND THEN -- another session was faster
                verdict := 'throttled';
                SELECT t.* INTO last FROM forge_throttles t WHERE t.key = new_job.unique_key;
            END IF;
        END IF;
        new_job.unique_key := NULL;
        new_job.unique_states := NULL;
    END IF;
    IF verdict = 'throttled' THEN
        accepts_at := last.accepted_at + period;
        SELECT j.* INTO job FROM river_job j WHERE j.id = last.job_id;
        IF NOT FOUND THEN -- its retention is over
            job := new_job;
            job.id := last.job_id;
            job.state := NULL;
            job.attempt := 0;
            job.created_at := last.accepted_at;
            job.scheduled_at := last.accepted_at;
        END IF;
        job.metadata := job.metadata || jsonb_build_object('forge:enqueue', jsonb_build_object('verdict', verdict, 'accepts_at', accepts_at));
        RETURN;
    END IF;

    new_job.metadata := new_job.metadata || jsonb_build_object('forge:unique', rule);
    LOOP
        INSERT INTO river_job AS j (id, args, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags, unique_key, unique_states)
        VALUES (new_job.id, new_job.args, new_job.kind, new_job.max_attempts, new_job.metadata, new_job.priority, new_job.queue,
                new_job.scheduled_at, new_job.state, coalesce(new_job.tags, '{}'), new_job.unique_key, new_job.unique_states)
        ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL AND river_job_state_in_bitmask(unique_states, state)
        DO UPDATE SET
            args = excluded.args,
            metadata = CASE WHEN jsonb_typeof(j.metadata) = 'object' THEN j.metadata || excluded.metadata
                || jsonb_build_object('forge:unique', rule || jsonb_build_object(
                    'merged', coalesce((j.metadata #> '{forge:unique,merged}')::bigint, 0) + 1, 'last_at', clock_timestamp()))
                ELSE j.metadata END,
            state = CASE WHEN moved AND j.state <> 'pending' THEN excluded.state ELSE j.state END,
            scheduled_at = CASE
                WHEN moved THEN excluded.scheduled_at
                WHEN rule ? 'debounce' AND j.state = 'scheduled' THEN least(clock_timestamp() + period, j.created_at + max_wait)
                ELSE j.scheduled_at END,
            priority = CASE WHEN given @> '{priority}' THEN excluded.priority ELSE j.priority END,
            max_attempts = CASE WHEN given @> '{max_attempts}' THEN excluded.max_attempts ELSE j.max_attempts END,
            tags = CASE WHEN given @> '{tags}' THEN excluded.tags ELSE j.tags END,
            unique_states = excluded.unique_states
        WHERE river_job_state_in_bitmask(waiting, j.state)
        RETURNING j.* INTO job;
        EXIT WHEN FOUND;
        UPDATE river_job AS j SET unique_states = NULL
        WHERE j.unique_key = new_job.unique_key AND j.unique_states IS NOT NULL AND NOT river_job_state_in_bitmask(waiting, j.state);
    END LOOP;
    verdict := CASE WHEN job.id = new_job.id THEN 'added' WHEN rule ? 'debounce' THEN 'debounced' ELSE 'replaced' END;
    IF job.state = 'available' AND (verdict = 'added' OR moved) THEN
        PERFORM pg_notify(current_schema() || '.river_insert', json_build_object('queue', job.queue, 'from', now())::text);
    END IF;
    job.metadata := job.metadata || jsonb_build_object('forge:enqueue', jsonb_build_object('verdict', verdict));
END
$$;
-- +goose StatementEnd

-- The rule for duplicates of a job, from its options or else from its kind's settings; null for a
-- job that is inserted or not. key_opts are the options for forge_unique_key.
-- +goose StatementBegin
CREATE FUNCTION forge_duplicate_rule(at text, opts jsonb, settings jsonb, OUT rule jsonb, OUT key_opts jsonb)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    own boolean := opts ?| '{unique,no_unique,unique_args,unique_period,unique_queue,unique_states,replace,debounce,throttle}';
    asked jsonb := CASE WHEN own THEN opts ELSE coalesce(settings -> 'unique', '{}') END;
    shortest CONSTANT numeric := 1000000;
    longest CONSTANT numeric := 366 * 86400000000;
    debounce numeric := forge_duration(asked ->> 'debounce');
    max_wait numeric := forge_duration(asked ->> 'max_wait');
    throttle numeric := forge_duration(asked ->> 'throttle');
BEGIN
    key_opts := opts;
    rule := (SELECT jsonb_object_agg(o.key, o.value) FROM jsonb_each(asked) AS o WHERE o.key IN ('replace', 'debounce', 'max_wait', 'throttle'));
    IF rule IS NULL THEN
        RETURN;
    ELSIF rule ? 'debounce' AND (debounce IS NULL OR debounce NOT BETWEEN shortest AND 30 * 86400000000) THEN
        PERFORM forge_refuse(at || '.debounce', 'no duration, or out of range', rule ->> 'debounce', '1s to 30d');
    ELSIF rule ? 'max_wait' AND (max_wait IS NULL OR max_wait NOT BETWEEN shortest AND longest) THEN
        PERFORM forge_refuse(at || '.max_wait', 'no duration, or out of range', rule ->> 'max_wait', '1s to 366d');
    ELSIF max_wait < debounce THEN
        PERFORM forge_refuse(at || '.max_wait', 'less than debounce', rule ->> 'max_wait', 'at least ' || (rule ->> 'debounce'));
    ELSIF rule ? 'throttle' AND (throttle IS NULL OR throttle NOT BETWEEN shortest AND longest) THEN
        PERFORM forge_refuse(at || '.throttle', 'no duration, or out of range', rule ->> 'throttle', '1s to 366d');
    ELSIF rule ? 'debounce' AND opts ?| '{at,delay}' THEN
        PERFORM forge_refuse(at, 'a time for a debounced job', coalesce(opts ->> 'at', opts ->> 'delay'), 'neither at nor delay: debounce determines when the job is due');
    END IF;
    IF NOT own THEN
        key_opts := jsonb_strip_nulls(jsonb_build_object('unique_args', nullif(asked -> 'by_args', 'false'), 'unique_queue', nullif(asked -> 'by_queue', 'false')));
    END IF;
    IF NOT key_opts ?| '{unique,unique_args,unique_queue}' THEN -- all jobs of the kind are equal
        key_opts := '{"unique_states": ["available", "pending", "running", "scheduled"]}';
    END IF;
END
$$;
-- +goose StatementEnd

-- As before, and with the options replace, debounce, max_wait and throttle.
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

-- As before, and by the rule for duplicates.
DROP FUNCTION forge_insert_job;
-- +goose StatementBegin
CREATE FUNCTION forge_insert_job(at text, new_kind text, new_args jsonb, opts jsonb, OUT job_id bigint, OUT is_duplicate boolean, OUT verdict text)
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

-- As before, with the verdict of each job: added, duplicate, replaced, debounced or throttled.
DROP FUNCTION forge_enqueue_many;
-- +goose StatementBegin
CREATE FUNCTION forge_enqueue_many(jobs jsonb) RETURNS TABLE (id bigint, existing boolean, verdict text)
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

-- As before, but a job whose unique states lack running releases its key for good when it
-- starts. Otherwise its attempt could not end while another job holds the key.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forge_move_unique_states() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    kept text := NEW.metadata ->> 'forge:unique_states';
BEGIN
    IF NEW.unique_states IS NOT NULL THEN
        UPDATE river_job
        SET unique_states = NULL,
            metadata = CASE WHEN jsonb_typeof(metadata) = 'object' AND NEW.state <> 'running'
                THEN metadata || jsonb_build_object('forge:unique_states', NEW.unique_states::text) ELSE metadata END
        WHERE id = NEW.id;
        RETURN NULL;
    END IF;
    IF kept IS NULL AND TG_OP = 'UPDATE' THEN -- a client has replaced the metadata
        kept := OLD.metadata ->> 'forge:unique_states';
    END IF;
    IF kept IS NULL OR kept !~ '^[01]{8}$' THEN
        RETURN NULL;
    END IF;
    IF river_job_state_in_bitmask(kept::bit(8), NEW.state) THEN
        UPDATE river_job SET unique_states = kept::bit(8), metadata = metadata - 'forge:unique_states' WHERE id = NEW.id;
    ELSIF NOT NEW.metadata ? 'forge:unique_states' AND jsonb_typeof(NEW.metadata) = 'object' THEN
        UPDATE river_job SET metadata = metadata || jsonb_build_object('forge:unique_states', kept) WHERE id = NEW.id;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- forge_enqueue_many works whatever the caller's search_path is.
-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION forge_enqueue_many SET search_path = %I, pg_temp', current_schema());
END
$$;
-- +goose StatementEnd

-- +goose Down
-- What waits is unique as it was before: until it is cancelled or discarded.
UPDATE river_job SET unique_states = B'11110101' WHERE unique_key IS NOT NULL AND unique_states = B'10010001';
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forge_move_unique_states() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    kept text := NEW.metadata ->> 'forge:unique_states';
BEGIN
    IF NEW.unique_states IS NOT NULL THEN
        UPDATE river_job
        SET unique_states = NULL,
            metadata = CASE WHEN jsonb_typeof(metadata) = 'object'
                THEN metadata || jsonb_build_object('forge:unique_states', NEW.unique_states::text) ELSE metadata END
        WHERE id = NEW.id;
        RETURN NULL;
    END IF;
    IF kept IS NULL AND TG_OP = 'UPDATE' THEN -- a client has replaced the metadata
        kept := OLD.metadata ->> 'forge:unique_states';
    END IF;
    IF kept IS NULL OR kept !~ '^[01]{8}$' THEN
        RETURN NULL;
    END IF;
    IF river_job_state_in_bitmask(kept::bit(8), NEW.state) THEN
        UPDATE river_job SET unique_states = kept::bit(8), metadata = metadata - 'forge:unique_states' WHERE id = NEW.id;
    ELSIF NOT NEW.metadata ? 'forge:unique_states' AND jsonb_typeof(NEW.metadata) = 'object' THEN
        UPDATE river_job SET metadata = metadata || jsonb_build_object('forge:unique_states', kept) WHERE id = NEW.id;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
DROP FUNCTION forge_enqueue_many;
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
-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION forge_enqueue_many SET search_path = %I, pg_temp', current_schema());
END
$$;
-- +goose StatementEnd
DROP FUNCTION forge_insert_job;
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
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION forge_check_opts(at text, opts jsonb) RETURNS jsonb
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
DROP FUNCTION forge_duplicate_rule, forge_insert_deduplicated;
DROP TABLE forge_throttles;
