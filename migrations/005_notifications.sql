-- +goose Up

-- What receivers are to be told: a run of a cron that failed for good. One tick
-- is told to one target once.
CREATE TABLE forge_notifications (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cron       text        NOT NULL,
    tick       timestamptz NOT NULL,
    -- A receiver, and a place of it where it has several: slack:#ops.
    target     text        NOT NULL,
    -- What is told: job_id, job, attempts and error.
    facts      jsonb       NOT NULL DEFAULT '{}',
    state      text        NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'failed')),
    attempts   integer     NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Nobody sends it before this instant: the next try, or the end of the time
    -- that somebody who is sending it has.
    next_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at    timestamptz,
    -- Of the last try that failed.
    error      text        NOT NULL DEFAULT '',
    -- Who tried last.
    node_id    text        NOT NULL DEFAULT '',
    term       bigint      NOT NULL DEFAULT 0,
    UNIQUE (cron, tick, target)
);
CREATE INDEX forge_notifications_pending ON forge_notifications (next_at) WHERE state = 'pending';
CREATE INDEX forge_notifications_done_at ON forge_notifications (done_at) WHERE state <> 'pending';

-- Writes what a cron's definition wants to be told of a failed run. It is called
-- in the transaction that makes the failure final, whoever does that, so that
-- whatever dies afterwards, both are there or neither is.
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

-- A job's metadata are anybody's to write: an unreadable tick is no cron's.
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

-- +goose Down
DROP TRIGGER forge_tick_failed ON forge_cron_ticks;
DROP TRIGGER forge_job_discarded ON river_job;
DROP FUNCTION forge_tick_failed;
DROP FUNCTION forge_job_discarded;
DROP FUNCTION forge_tell_failure;
DROP TABLE forge_notifications;
