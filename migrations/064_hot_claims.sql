-- +goose Up

-- A claim changes state, attempt, attempted_at and attempted_by of its rows. While no index
-- names one of these columns, a claim is a heap-only update: it writes no index entry, and its
-- row stays on its page. A job's life then costs four B-tree entries, two at its insertion and
-- two at its end. Before, it cost nine.

-- The claims whose jobs may still run: one row for each claim. Every running job is in ids of a
-- row with the client that runs it. Jobs that have ended stay there until the row is deleted, so
-- queries also check the job's state. No index can list running jobs, because it would name the
-- state.
CREATE TABLE forge_claims (
    client_id text     NOT NULL,
    ids       bigint[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

INSERT INTO forge_claims (client_id, ids)
SELECT coalesce(attempted_by[array_upper(attempted_by, 1)], ''), array_agg(id)
FROM river_job
WHERE state = 'running'
GROUP BY 1;

-- forge_state is the state where neither a claim nor a success changes it, and null for
-- available, running and completed jobs. forge_unrecorded is true for dead letters that the
-- scheduler's leader has not recorded. Indexes name these columns. A row that is null in both
-- needs no space for them.
--
-- Both columns rewrite the table, so its indexes are created afterwards.
DROP INDEX IF EXISTS river_job_kind;
DROP INDEX IF EXISTS river_job_prioritized_fetching_index;
DROP INDEX IF EXISTS river_job_state_and_finalized_at_index;
DROP INDEX IF EXISTS river_job_unique_idx;
DROP INDEX IF EXISTS forge_river_job_due;
DROP INDEX IF EXISTS forge_river_job_dead_new;
DROP INDEX IF EXISTS forge_river_job_second_round;

-- A new job takes about a third of the space that it needs once it has ended: the claim and the
-- result each add a version of the row, and those before are removed only if there is no room.
ALTER TABLE river_job SET (fillfactor = 40);
ALTER TABLE river_job
    ADD COLUMN forge_state river_job_state GENERATED ALWAYS AS (
        CASE WHEN state IN ('available', 'running', 'completed') THEN NULL ELSE state END) STORED,
    ADD COLUMN forge_unrecorded boolean GENERATED ALWAYS AS (
        CASE WHEN state = 'discarded' AND attempt >= max_attempts AND jsonb_typeof(metadata) = 'object'
            AND (metadata #>> '{forge:dead,attempt}') IS DISTINCT FROM attempt::text THEN true END) STORED;

-- Available and running jobs, in the order in which they are offered.
CREATE INDEX river_job_prioritized_fetching_index ON river_job (queue, priority, scheduled_at, id)
    WHERE finalized_at IS NULL AND forge_state IS NULL;
-- Scheduled and retryable jobs, in the order in which they become available. State and queue
-- are for counts.
CREATE INDEX forge_river_job_due ON river_job (priority, scheduled_at, id, forge_state, queue)
    WHERE forge_state IN ('scheduled', 'retryable');
CREATE INDEX forge_river_job_pending ON river_job (queue) WHERE forge_state = 'pending';
-- Finished jobs by their end: completed jobs, and the others by state.
CREATE INDEX river_job_state_and_finalized_at_index ON river_job (finalized_at)
    WHERE finalized_at IS NOT NULL AND forge_state IS NULL;
CREATE INDEX forge_river_job_ended ON river_job (forge_state, finalized_at)
    WHERE forge_state IN ('cancelled', 'discarded');
CREATE INDEX forge_river_job_dead_new ON river_job ((metadata #>> '{forge:dead,attempt}'), id)
    WHERE forge_unrecorded;
CREATE INDEX forge_river_job_second_round ON river_job ((metadata #>> '{forge:dead,second_round}') COLLATE "C")
    WHERE forge_state = 'discarded' AND (metadata #>> '{forge:dead,second_round}') IS NOT NULL;
-- The pages of the table that may have jobs of a kind, as forge_river_job_queue for queues.
CREATE INDEX river_job_kind ON river_job USING brin (kind text_bloom_ops (n_distinct_per_range = 32))
    WITH (pages_per_range = 32);

-- River's predicate names the state. ON CONFLICT in River's statements also takes this index,
-- because their predicate implies this one. A trigger removes a row from it whose state is not
-- among its unique_states: it moves them to the metadata, and back when the state is among them
-- again. Then another job with the same key makes the change fail, as with River's index.
--
-- It runs after the change. For a trigger that runs before, PostgreSQL locks each row first,
-- which costs every claim and every result a record in the WAL, and COPY writes row by row.
-- +goose StatementBegin
CREATE FUNCTION forge_move_unique_states() RETURNS trigger
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

UPDATE river_job
SET metadata = CASE WHEN jsonb_typeof(metadata) = 'object'
        THEN metadata || jsonb_build_object('forge:unique_states', unique_states::text) ELSE metadata END,
    unique_states = NULL
WHERE unique_key IS NOT NULL AND NOT river_job_state_in_bitmask(unique_states, state);

CREATE UNIQUE INDEX river_job_unique_idx ON river_job (unique_key)
    WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL;
CREATE TRIGGER forge_job_unique_inserted AFTER INSERT ON river_job FOR EACH ROW
WHEN (NEW.unique_key IS NOT NULL AND NOT river_job_state_in_bitmask(NEW.unique_states, NEW.state))
EXECUTE FUNCTION forge_move_unique_states();
CREATE TRIGGER forge_job_unique AFTER UPDATE OF state, unique_states ON river_job FOR EACH ROW
WHEN (NEW.unique_key IS NOT NULL AND (NEW.unique_states IS NULL OR NOT river_job_state_in_bitmask(NEW.unique_states, NEW.state)))
EXECUTE FUNCTION forge_move_unique_states();

-- forge's claims insert their rows of forge_claims themselves, and set forge.claims to 'noted'.
-- For everybody else, such as nodes of earlier versions and other River clients, triggers do it.
-- +goose StatementBegin
CREATE FUNCTION forge_note_claim() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO forge_claims (client_id, ids)
    VALUES (coalesce(NEW.attempted_by[array_upper(NEW.attempted_by, 1)], ''), ARRAY[NEW.id]);
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER forge_job_inserted_running AFTER INSERT ON river_job FOR EACH ROW
WHEN (NEW.state = 'running')
EXECUTE FUNCTION forge_note_claim();
CREATE TRIGGER forge_job_claimed AFTER UPDATE OF state, attempted_by ON river_job FOR EACH ROW
WHEN (NEW.state = 'running' AND (OLD.state <> 'running' OR OLD.attempted_by IS DISTINCT FROM NEW.attempted_by)
    AND current_setting('forge.claims', true) IS DISTINCT FROM 'noted')
EXECUTE FUNCTION forge_note_claim();

-- +goose Down
DROP TRIGGER forge_job_claimed ON river_job;
DROP TRIGGER forge_job_inserted_running ON river_job;
DROP FUNCTION forge_note_claim;
DROP TRIGGER forge_job_unique ON river_job;
DROP TRIGGER forge_job_unique_inserted ON river_job;
DROP FUNCTION forge_move_unique_states;
DROP INDEX IF EXISTS river_job_unique_idx;
UPDATE river_job
SET unique_states = (metadata ->> 'forge:unique_states')::bit(8), metadata = metadata - 'forge:unique_states'
WHERE unique_key IS NOT NULL AND unique_states IS NULL AND metadata ->> 'forge:unique_states' ~ '^[01]{8}$';
DROP INDEX IF EXISTS river_job_kind;
DROP INDEX forge_river_job_second_round;
DROP INDEX forge_river_job_dead_new;
DROP INDEX forge_river_job_ended;
DROP INDEX IF EXISTS river_job_state_and_finalized_at_index;
DROP INDEX forge_river_job_pending;
DROP INDEX forge_river_job_due;
DROP INDEX IF EXISTS river_job_prioritized_fetching_index;
ALTER TABLE river_job DROP forge_unrecorded, DROP forge_state; -- both are computed
ALTER TABLE river_job SET (fillfactor = 60);
CREATE UNIQUE INDEX river_job_unique_idx ON river_job (unique_key)
    WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL AND river_job_state_in_bitmask(unique_states, state);
CREATE INDEX river_job_kind ON river_job (kind);
CREATE INDEX forge_river_job_second_round ON river_job ((metadata #>> '{forge:dead,second_round}') COLLATE "C")
    WHERE state = 'discarded' AND (metadata #>> '{forge:dead,second_round}') IS NOT NULL;
CREATE INDEX forge_river_job_dead_new ON river_job ((metadata #>> '{forge:dead,attempt}'), id)
    WHERE state = 'discarded' AND attempt >= max_attempts AND jsonb_typeof(metadata) = 'object'
      AND (metadata #>> '{forge:dead,attempt}') IS DISTINCT FROM attempt::text;
CREATE INDEX river_job_state_and_finalized_at_index ON river_job (state, finalized_at) WHERE finalized_at IS NOT NULL;
CREATE INDEX forge_river_job_due ON river_job (scheduled_at) WHERE state IN ('scheduled', 'retryable');
CREATE INDEX river_job_prioritized_fetching_index ON river_job (state, queue, priority, scheduled_at, id)
    WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled');
DROP TABLE forge_claims;
