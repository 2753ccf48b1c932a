package chaos

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/test/chaos/checker"
	"github.com/forge-scheduler/forge/test/chaos/journal"
	"github.com/forge-scheduler/forge/test/chaos/prober"
)

const (
	missSQL      = `UPDATE forge_crons SET watermark = watermark - $2::interval, next_tick = watermark - $2::interval WHERE name = $1`
	watermarkSQL = `SELECT watermark FROM forge_crons WHERE name = $1`
	leaderSQL    = `SELECT node_id, term FROM forge_leaders WHERE role = 'scheduler' AND node_id IS NOT NULL`

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
)

// history reads all that is known of the run.
func (r *run) history() *checker.History {
	r.Helper()
	h, err := r.read()
	for tries := 1; err != nil && tries < 3; tries++ { // a pooler may yet end because of what the nodes did last
		r.Log(err)
		time.Sleep(time.Second)
		h, err = r.read()
	}
	if err != nil {
		r.Fatal(err)
	}
	h.Acked, h.Poisoned, h.Leaps = r.acked, r.poisoned, r.leaps
	h.Turns = r.turns
	h.KeyLimits = map[string]int{limitedJob: keyLimit}
	h.Rates = map[string]checker.Rate{ratedJob: {Limit: rateLimit, Per: ratePer}}
	if r.prober != nil {
		h.Sightings = r.prober.Stop()
	}
	for _, c := range r.crons {
		h.Crons = append(h.Crons, c.Cron)
	}
	return h
}

// read reads what the database and the witnesses know of the run.
func (r *run) read() (*checker.History, error) {
	h, err := journal.Read(r.Context(), r.pool, r.testimony())
	if err != nil {
		return nil, err
	}
	h.Tenures, err = prober.Tenures(r.Context(), r.pool)
	return h, err
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
