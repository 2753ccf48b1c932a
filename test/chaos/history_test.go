package chaos

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/test/chaos/checker"
)

// journalSQL has triggers number what is written. Entries draw their numbers and
// their time when their transaction commits, as they may be prepared before their
// tick, leaders when they take the row. Whoever writes in a leader's name has that
// row locked until the commit is done, and so the numbers say what came first.
//
// chaos_commit is also where a leader is severed: it is the server that takes its
// time, so nothing that the leader does can stop its commit any more. Sequences
// carry the order and its receipt because no transaction takes them back.
const journalSQL = `
CREATE SEQUENCE chaos_seq;
CREATE TABLE chaos_leads (
    seq bigint DEFAULT nextval('chaos_seq'), at timestamptz DEFAULT clock_timestamp(), role text, term bigint, node_id text);
CREATE TABLE chaos_entries (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, seq bigint, at timestamptz DEFAULT clock_timestamp(), txid bigint,
    cron text, tick timestamptz, verdict text, term bigint, node_id text);
CREATE TABLE chaos_ends (at timestamptz DEFAULT clock_timestamp(), job_id bigint);
CREATE FUNCTION chaos_lead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos_leads (role, term, node_id) VALUES (NEW.role, NEW.term, coalesce(NEW.node_id, ''));
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
CREATE TRIGGER chaos_insert AFTER INSERT ON forge_leaders FOR EACH ROW EXECUTE FUNCTION chaos_lead();
CREATE TRIGGER chaos_update AFTER UPDATE ON forge_leaders FOR EACH ROW
    WHEN ((OLD.term, OLD.node_id) IS DISTINCT FROM (NEW.term, NEW.node_id)) EXECUTE FUNCTION chaos_lead();
CREATE TRIGGER chaos_insert AFTER INSERT ON forge_cron_ticks FOR EACH ROW EXECUTE FUNCTION chaos_entry();
CREATE TRIGGER chaos_update AFTER UPDATE ON forge_cron_ticks FOR EACH ROW
    WHEN (OLD.verdict IS DISTINCT FROM NEW.verdict) EXECUTE FUNCTION chaos_entry();
CREATE TRIGGER chaos_update AFTER UPDATE ON river_job FOR EACH ROW
    WHEN (OLD.finalized_at IS NULL AND NEW.finalized_at IS NOT NULL) EXECUTE FUNCTION chaos_end();`

const (
	missSQL      = `UPDATE forge_crons SET watermark = watermark - $2::interval, next_tick = watermark - $2::interval WHERE name = $1`
	watermarkSQL = `SELECT watermark FROM forge_crons WHERE name = $1`
	leaderSQL    = `SELECT node_id FROM forge_leaders WHERE role = 'scheduler' AND node_id IS NOT NULL`

	endSessionSQL = `SELECT count(*) FILTER (WHERE pg_terminate_backend(backend_pid)) FROM forge_leaders WHERE role = 'scheduler' AND node_id IS NOT NULL`
	severSQL      = `SELECT setval('chaos_ordered', last_value + 1) FROM chaos_ordered`
	severedSQL    = `SELECT d.last_value = o.last_value FROM chaos_done d, chaos_ordered o`
	endNodeSQL    = `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'forge:%:' || $1`
	endAllSQL     = `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'forge:%'`

	openSQL = `
SELECT concat_ws(', ',
    (SELECT 'ticks of ' || string_agg(name, ' ') FROM forge_crons WHERE next_tick IS NOT NULL),
    (SELECT count(*) || ' queued ticks' FROM forge_cron_ticks WHERE verdict = 'queued' HAVING count(*) > 0),
    (SELECT count(*) || ' jobs: ' || string_agg(id || ' ' || state, ' ') FROM river_job WHERE finalized_at IS NULL HAVING count(*) > 0))`

	rowsSQL = `
SELECT cron, tick, coalesce(last_tick, '0001-01-01Z'), tick_count, verdict, reason, coalesce(job_id, 0), term, node_id
FROM forge_cron_ticks ORDER BY cron, tick`
	entriesSQL = `SELECT seq, at, txid, cron, tick, verdict, term, node_id FROM chaos_entries ORDER BY seq`
	leadsSQL   = `SELECT seq, at, role, term, node_id FROM chaos_leads ORDER BY seq`
	jobsSQL    = `
SELECT id, coalesce(metadata ->> 'forge:cron', ''), coalesce((metadata ->> 'forge:tick')::timestamptz, '0001-01-01Z'),
       state::text, attempt, coalesce(finalized_at, '0001-01-01Z'),
       coalesce((SELECT max(at) FROM chaos_ends WHERE job_id = id), '0001-01-01Z')
FROM river_job ORDER BY id`
)

// history reads all that is known of the run.
func (r *run) history() *checker.History {
	r.Helper()
	h := &checker.History{
		Rows:    read[checker.Row](r, rowsSQL),
		Entries: read[checker.Entry](r, entriesSQL),
		Leads:   read[checker.Lead](r, leadsSQL),
		Jobs:    read[checker.Job](r, jobsSQL),
		Lines:   r.lines(),
		Acked:   r.acked,
	}
	for _, c := range r.crons {
		h.Crons = append(h.Crons, c.Cron)
	}
	return h
}

func read[T any](r *run, sql string) []T {
	r.Helper()
	rows, err := r.pool.Query(r.Context(), sql)
	if err != nil {
		r.Fatalf("%s: %v", sql, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	if err != nil {
		r.Fatalf("%s: %v", sql, err)
	}
	return found
}

// lines reads what the jobs said themselves.
func (r *run) lines() []checker.Line {
	r.Helper()
	body, err := os.ReadFile(r.testimony())
	if err != nil {
		r.Fatal(err)
	}
	var lines []checker.Line
	for text := range bytes.Lines(body) {
		var line checker.Line
		if err := json.Unmarshal(text, &line); err != nil {
			r.Fatalf("%s: %q: %v", r.testimony(), text, err)
		}
		lines = append(lines, line)
	}
	return lines
}

// processes lists those of the run that live: by the mark in their environment,
// or by the program that they run.
func (r *run) processes() []string {
	r.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		r.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		dir := filepath.Join("/proc", entry.Name())
		environ, _ := os.ReadFile(filepath.Join(dir, "environ")) // it may be gone
		program, _ := os.Readlink(filepath.Join(dir, "exe"))
		if bytes.Contains(environ, []byte(markerName+"="+r.dir)) || strings.HasPrefix(program, r.dir) {
			command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
			found = append(found, entry.Name()+" "+string(bytes.ReplaceAll(command, []byte{0}, []byte(" "))))
		}
	}
	return found
}
