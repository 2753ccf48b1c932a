// Package journal has a database write down what happens to it, and reads what the
// checker is to judge.
package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/test/chaos/checker"
)

// triggersSQL has triggers number what is written. Entries draw their numbers and
// their time when their transaction commits, as they may be prepared before their
// tick. Leaders draw their time as they take the row: a trigger that runs afterwards runs at
// the end of the statement, and a statement that stalls would make each gap look wrong. The
// first trigger of a session comes late, too, so the time of the statement bounds theirs. Triggers
// fire in the order of their names: the one for deleted rows is later than forge's, which ends the
// term.
// Whoever writes in a leader's name has that row locked until the commit is done, and so
// the numbers say what came first.
//
// chaos_commit is also where a leader is severed: it is the server that takes its
// time, so nothing that the leader does can stop its commit any more. Sequences
// carry the order and its receipt because no transaction takes them back.
const triggersSQL = `
CREATE SEQUENCE chaos_seq;
CREATE TABLE chaos_leads (
    seq bigint DEFAULT nextval('chaos_seq'), at timestamptz DEFAULT clock_timestamp(), role text, term bigint, node_id text,
    deleted boolean DEFAULT false, began timestamptz DEFAULT statement_timestamp());
CREATE TABLE chaos_entries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, seq bigint, at timestamptz DEFAULT clock_timestamp(), txid bigint,
    cron text, tick timestamptz, verdict text, term bigint, node_id text);
CREATE TABLE chaos_runs (
    seq bigint DEFAULT nextval('chaos_seq'), job_id bigint, kind text, key text, began boolean,
    started_at timestamptz, from_at timestamptz DEFAULT now(), to_at timestamptz DEFAULT clock_timestamp());
CREATE TABLE chaos_ends (seq bigint DEFAULT nextval('chaos_seq'), at timestamptz DEFAULT clock_timestamp(), job_id bigint);
CREATE FUNCTION chaos_take() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM set_config('chaos.taken_at', clock_timestamp()::text, true);
    RETURN NEW;
END $$;
CREATE FUNCTION chaos_lead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos_leads (at, role, term, node_id)
    VALUES (current_setting('chaos.taken_at')::timestamptz, NEW.role, NEW.term, coalesce(NEW.node_id, ''));
    RETURN NULL;
END $$;
CREATE FUNCTION chaos_delete() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos_leads (role, term, node_id, deleted) VALUES (OLD.role, OLD.term, '', true);
    RETURN NULL;
END $$;
CREATE FUNCTION chaos_entry() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos_entries (txid, cron, tick, verdict, term, node_id)
    VALUES (pg_current_xact_id()::text::bigint, NEW.cron, NEW.tick, NEW.verdict, NEW.term, NEW.node_id);
    RETURN NULL;
END $$;
CREATE FUNCTION chaos_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos_ends (job_id) VALUES (NEW.id);
    RETURN NULL;
END $$;
CREATE FUNCTION chaos_run() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos_runs (job_id, kind, key, began, started_at)
    VALUES (NEW.id, NEW.kind, NEW.args ->> 'tenant', NEW.state = 'running', NEW.attempted_at);
    RETURN NULL;
END $$;
CREATE SEQUENCE chaos_ordered;
CREATE SEQUENCE chaos_done;
CREATE FUNCTION chaos_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF (SELECT last_value FROM chaos_done) <> (SELECT last_value FROM chaos_ordered) THEN
        PERFORM setval('chaos_done', (SELECT last_value FROM chaos_ordered));
        PERFORM pg_terminate_backend(backend_pid) FROM forge_leaders WHERE role = 'scheduler' AND node_id IS NOT NULL;
        FOR n IN 1..8 LOOP
            BEGIN
                PERFORM pg_sleep(0.05);
            EXCEPTION WHEN query_canceled THEN -- as one that waits for the disk, a commit does not hear it
            END;
        END LOOP;
    END IF;
    UPDATE chaos_entries SET seq = nextval('chaos_seq'), at = clock_timestamp() WHERE id = NEW.id;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER chaos_commit AFTER INSERT ON chaos_entries DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION chaos_commit();
CREATE TRIGGER chaos_take BEFORE INSERT OR UPDATE ON forge_leaders FOR EACH ROW EXECUTE FUNCTION chaos_take();
CREATE TRIGGER chaos_insert AFTER INSERT ON forge_leaders FOR EACH ROW EXECUTE FUNCTION chaos_lead();
CREATE TRIGGER chaos_update AFTER UPDATE ON forge_leaders FOR EACH ROW
    WHEN ((OLD.term, OLD.node_id) IS DISTINCT FROM (NEW.term, NEW.node_id)) EXECUTE FUNCTION chaos_lead();
CREATE TRIGGER later_chaos_delete AFTER DELETE ON forge_leaders FOR EACH ROW EXECUTE FUNCTION chaos_delete();
CREATE TRIGGER chaos_insert AFTER INSERT ON forge_cron_ticks FOR EACH ROW EXECUTE FUNCTION chaos_entry();
CREATE TRIGGER chaos_update AFTER UPDATE ON forge_cron_ticks FOR EACH ROW
    WHEN (OLD.verdict IS DISTINCT FROM NEW.verdict) EXECUTE FUNCTION chaos_entry();
CREATE TRIGGER chaos_run AFTER UPDATE ON river_job FOR EACH ROW
    WHEN (NEW.args ? 'tenant' AND OLD.state <> NEW.state AND 'running' IN (OLD.state, NEW.state)) EXECUTE FUNCTION chaos_run();
CREATE TRIGGER chaos_update AFTER UPDATE ON river_job FOR EACH ROW
    WHEN (OLD.finalized_at IS NULL AND NEW.finalized_at IS NOT NULL) EXECUTE FUNCTION chaos_end();`

const (
	rowsSQL = `
SELECT cron, tick, coalesce(last_tick, '0001-01-01Z'), tick_count, verdict, reason, coalesce(job_id, 0), term, node_id
FROM forge_cron_ticks ORDER BY cron, tick`
	entriesSQL = `SELECT seq, at, txid, cron, tick, verdict, term, node_id FROM chaos_entries ORDER BY seq`
	leadsSQL   = `SELECT seq, at, role, term, node_id, deleted, began FROM chaos_leads ORDER BY seq`
	runsSQL    = `
SELECT seq, job_id, kind, key, began, coalesce(started_at, '0001-01-01Z'), from_at, to_at FROM chaos_runs ORDER BY seq`
	jobsSQL = `
SELECT id, coalesce(metadata ->> 'forge:cron', ''), coalesce((metadata ->> 'forge:tick')::timestamptz, '0001-01-01Z'),
       state::text, attempt, coalesce(finalized_at, '0001-01-01Z'),
       coalesce(at, '0001-01-01Z'), coalesce(seq, 0)
FROM river_job LEFT JOIN (SELECT DISTINCT ON (job_id) job_id, at, seq FROM chaos_ends ORDER BY job_id, seq DESC) AS ends ON job_id = id
ORDER BY id`
)

// LastSeqSQL reads the last number that the journal has drawn.
const LastSeqSQL = `SELECT last_value FROM chaos_seq`

// Install puts the journal's triggers on forge's tables, which must be there.
func Install(ctx context.Context, db *pgxpool.Pool) error {
	if _, err := db.Exec(ctx, triggersSQL); err != nil {
		return fmt.Errorf("install the journal: %w", err)
	}
	return nil
}

// Read returns what the database says, and what the jobs wrote to the file of
// testimony. Crons and Acked are for the caller to fill in.
func Read(ctx context.Context, db *pgxpool.Pool, testimony string) (*checker.History, error) {
	h := &checker.History{}
	if err := collect(ctx, db, rowsSQL, &h.Rows); err != nil {
		return nil, err
	}
	if err := collect(ctx, db, entriesSQL, &h.Entries); err != nil {
		return nil, err
	}
	if err := collect(ctx, db, leadsSQL, &h.Leads); err != nil {
		return nil, err
	}
	if err := collect(ctx, db, jobsSQL, &h.Jobs); err != nil {
		return nil, err
	}
	if err := collect(ctx, db, runsSQL, &h.Runs); err != nil {
		return nil, err
	}
	var err error
	h.Lines, err = lines(testimony)
	return h, err
}

func collect[T any](ctx context.Context, db *pgxpool.Pool, sql string, into *[]T) error {
	rows, err := db.Query(ctx, sql)
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	if *into, err = pgx.CollectRows(rows, pgx.RowToStructByPos[T]); err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	return nil
}

// lines reads what the jobs said themselves; nothing, if none has begun.
func lines(path string) ([]checker.Line, error) {
	body, err := os.ReadFile(path) //nolint:gosec // the run's own
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []checker.Line
	for text := range bytes.Lines(body) {
		var line checker.Line
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, text, err)
		}
		found = append(found, line)
	}
	return found, nil
}
