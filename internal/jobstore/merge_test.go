package jobstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// archive is a database in which output is merged.
type archive struct {
	t    *testing.T
	pool *pgxpool.Pool
	at   time.Time
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	return &archive{t: t, pool: pgtest.Pool(t), at: time.Now().Add(-time.Hour).Truncate(time.Microsecond)}
}

func (a *archive) exec(sql string, args ...any) {
	a.t.Helper()
	if _, err := a.pool.Exec(a.t.Context(), sql, args...); err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
}

// job adds a job with a number of attempts.
func (a *archive) job(id int64, state string, attempt int) {
	a.t.Helper()
	a.exec(`INSERT INTO river_job (id, kind, args, max_attempts, attempt, state, finalized_at)
		VALUES ($1, 'k', '{}', 9, $2, $3::river_job_state, CASE WHEN $3 IN ('completed', 'discarded') THEN now() END)`, id, attempt, state)
}

func (a *archive) write(job int64, rows ...jobstore.LogChunk) {
	a.t.Helper()
	all := make([]jobstore.LogRow, len(rows))
	for i, chunk := range rows {
		all[i] = jobstore.LogRow{JobID: job, LogChunk: chunk}
	}
	if err := jobstore.New(a.pool).AppendLogs(a.t.Context(), all); err != nil {
		a.t.Fatal(err)
	}
}

func (a *archive) chunk(attempt, seq int, text string) jobstore.LogChunk {
	return jobstore.LogChunk{
		Attempt: attempt, Seq: seq, At: a.at.Add(time.Duration(seq) * time.Second / 100),
		Stream: []string{"stdout", "stderr", "system"}[seq%3], Chunk: text,
	}
}

func (a *archive) run(attempt, length int) (chunks []jobstore.LogChunk) {
	for seq := 1; seq <= length; seq++ {
		chunks = append(chunks, a.chunk(attempt, seq, fmt.Sprintf("line %d of %d\n", seq, attempt)))
	}
	return chunks
}

// merge merges the output of all ended attempts, as the compactor does.
func (a *archive) merge(most int) (all jobstore.Merged) {
	a.t.Helper()
	for from := (jobstore.RunKey{}); ; {
		var done jobstore.Merged
		err := pgx.BeginFunc(a.t.Context(), a.pool, func(tx pgx.Tx) (err error) {
			from, done, err = jobstore.New(tx).Merge(context.Background(), from, a.at.Add(30*time.Minute), most)
			return err
		})
		if err != nil {
			a.t.Fatal(err)
		}
		all.Add(done)
		if from == (jobstore.RunKey{}) {
			return all
		}
	}
}

func (a *archive) count(sql string) (n int) {
	a.t.Helper()
	if err := a.pool.QueryRow(a.t.Context(), sql).Scan(&n); err != nil {
		a.t.Fatal(err)
	}
	return n
}

func (a *archive) loose() int { return a.count(`SELECT count(*) FROM forge_job_logs`) }

// read reads the output page by page after a chunk.
func (a *archive) read(job int64, attempt, after int) (all []jobstore.LogChunk) {
	a.t.Helper()
	for {
		chunks, err := jobstore.New(a.pool).Logs(a.t.Context(), job, attempt, after)
		if err != nil {
			a.t.Fatal(err)
		}
		if len(chunks) == 0 {
			return all
		}
		all, after = append(all, chunks...), chunks[len(chunks)-1].Seq
	}
}

func (a *archive) want(job int64, attempt, after int, want []jobstore.LogChunk) {
	a.t.Helper()
	if diff := cmp.Diff(want, a.read(job, attempt, after)); diff != "" {
		a.t.Errorf("attempt %d of job %d after %d (-want +got):\n%s", attempt, job, after, diff)
	}
}

func TestMergePreservesOutput(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.job(1, "completed", 2)
	a.job(2, "running", 2)
	a.job(3, "completed", 1)
	a.job(4, "scheduled", 0) // snoozed: attempt 1 runs again
	first, second := a.run(1, 3), a.run(2, 5000)
	over, running := a.run(1, 4), a.run(2, 4)
	snoozed := a.run(1, 2)
	fresh := []jobstore.LogChunk{{Attempt: 1, Seq: 1, At: time.Now().Truncate(time.Microsecond), Stream: "stdout", Chunk: "just now"}}
	a.write(1, append(first, second...)...)
	a.write(2, append(over, running...)...)
	a.write(3, fresh...)
	a.write(4, snoozed...)

	done := a.merge(2)
	if want := int64(3 + 5000 + 4 + 2); done.Chunks != want {
		t.Errorf("merged %d chunks; want %d", done.Chunks, want)
	}
	if n := a.loose(); n != 4+1 {
		t.Errorf("%d chunks are left as they were; want those of the running attempt and of the one that just ended, 5", n)
	}
	check := func() {
		t.Helper()
		a.want(1, 1, 0, first)
		a.want(1, 2, 0, second)
		a.want(1, 2, 4321, second[4321:])
		a.want(1, 2, 5000, nil)
		a.want(2, 1, 2, over[2:])
		a.want(2, 2, 0, running)
		a.want(3, 1, 0, fresh)
		a.want(4, 1, 0, snoozed)
	}
	check()
	if again := a.merge(100); again.Chunks != 0 || again.Packs != 0 {
		t.Errorf("merged again: %+v", again)
	}
	check()
	last, err := jobstore.New(a.pool).LastSeqs(t.Context(), []jobstore.RunKey{{4, 1}, {1, 2}, {2, 2}, {9, 1}})
	if diff := cmp.Diff(map[jobstore.RunKey]int{{4, 1}: 2, {1, 2}: 5000, {2, 2}: 4}, last); err != nil || diff != "" {
		t.Errorf("where output ends: %v (-want +got):\n%s", err, diff)
	}
}

// Chunks that are written late or again after the merge appear once and in order.
func TestMergeOfLateAndDuplicateChunks(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.job(1, "completed", 1)
	all := a.run(1, 9)
	a.write(1, all[1], all[2], all[6])
	a.merge(10)
	a.write(1, all[2], all[4]) // a chunk whose response was lost, and a late one
	a.want(1, 1, 0, []jobstore.LogChunk{all[1], all[2], all[4], all[6]})
	a.want(1, 1, 3, []jobstore.LogChunk{all[4], all[6]})
	a.merge(10)
	a.write(1, all[0], all[3], all[8])
	a.merge(10)
	a.write(1, all[5], all[7])
	a.want(1, 1, 0, all)
	a.merge(10)
	a.want(1, 1, 0, all)
	if n := a.loose(); n != 0 {
		t.Errorf("%d chunks are left", n)
	}
	if n := a.count(`SELECT count(*) FROM forge_job_log_packs a JOIN forge_job_log_packs b
		ON a.job_id = b.job_id AND a.first_seq < b.first_seq AND a.last_seq >= b.first_seq`); n != 0 {
		t.Errorf("%d packs overlap", n)
	}
}

func TestPacksAreBounded(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.job(1, "completed", 1)
	var all []jobstore.LogChunk
	for seq := 1; seq <= 100; seq++ { // 6 MiB that compress badly
		var text strings.Builder
		for text.Len() < 64<<10 {
			fmt.Fprintf(&text, "%x", rand.Uint64())
		}
		all = append(all, a.chunk(1, seq, text.String()))
	}
	late := a.chunk(1, 101, "a day later\n") // may be deleted later than the others
	late.At = a.at.Add(-24 * time.Hour)
	all = append(all, late)
	a.write(1, all...)
	own := a.chunk(1, 102, "has a retention of its own\n")
	if err := jobstore.New(a.pool).AppendLogs(t.Context(), []jobstore.LogRow{{JobID: 1, LogChunk: own, KeepUntil: a.at.Add(time.Minute)}}); err != nil {
		t.Fatal(err)
	}
	a.merge(10)
	a.want(1, 1, 0, append(all, own))
	if n := a.count(`SELECT max(text_bytes) FROM forge_job_log_packs`); n > 1<<20 {
		t.Errorf("a pack holds %d bytes", n)
	}
	if n := a.count(`SELECT count(*) FROM forge_job_log_packs WHERE (last_seq = 102) <> (keep_until IS NOT NULL)`); n != 0 {
		t.Errorf("%d packs have another retention than their chunks", n)
	}
	if n := a.count(`SELECT count(*) FROM forge_job_log_packs WHERE last_seq = 101 AND first_seq < 101`); n != 0 {
		t.Error("a pack spans a day")
	}
}

// Only the attempt of an unreadable pack is not merged.
func TestDamagedPackIsSkipped(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for id := int64(1); id <= 3; id++ {
		a.job(id, "completed", 1)
	}
	a.write(2, a.run(1, 3)...)
	a.merge(10)
	a.exec(`UPDATE forge_job_log_packs SET pack = 'no frame of zstd'`)
	late := a.run(1, 5000)[1:] // more than one call takes; the pack contains the first chunks
	before, after := a.run(1, 2), a.run(1, 4)
	a.write(1, before...)
	a.write(2, late...)
	a.write(3, after...)
	for range 2 {
		done := a.merge(10)
		if len(done.Skipped) != 1 || done.Skipped[0].JobID != 2 || done.Skipped[0].Attempt != 1 {
			t.Errorf("skipped %v, want attempt 1 of job 2", done.Skipped)
		}
		if loose := a.loose(); loose != len(late) {
			t.Errorf("%d chunks are not merged, want the %d beside the damaged pack", loose, len(late))
		}
		a.want(1, 1, 0, before)
		a.want(3, 1, 0, after)
	}
}

// All undamaged output can be read.
func TestLogsReadPastDamagedPack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.job(1, "completed", 1)
	lines := a.run(1, 6)
	for i := 0; i < 6; i += 2 {
		a.write(1, lines[i:i+2]...)
		a.merge(10)
	}
	a.exec(`UPDATE forge_job_log_packs SET pack = 'no frame of zstd' WHERE first_seq <= 3 AND last_seq >= 3`)
	remark := jobstore.LogChunk{
		Attempt: 1, Seq: 4, At: lines[3].At, Stream: jobstore.StreamSystem,
		Chunk: "the output of chunks 3 to 4 cannot be read: invalid input: magic number mismatch\n",
	}
	a.want(1, 1, 0, []jobstore.LogChunk{lines[0], lines[1], remark, lines[4], lines[5]})
	a.want(1, 1, 3, []jobstore.LogChunk{remark, lines[4], lines[5]})
}
