package jobstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// maxPackBytes of text are in a pack: who reads one chunk unpacks that much.
	maxPackBytes = 1 << 20
	// maxPackSpan is the time between the first chunk of a pack and the last; it is
	// deleted only when that may go.
	maxPackSpan = time.Hour
	// maxMergedBytes and maxMergedChunks bound one call of Merge.
	maxMergedBytes  = 2 << 20
	maxMergedChunks = 4000
)

// Attempts with output, from one on, found by skipping from each to the next
// through the primary key, and of those that are over what they come to, up to a
// bound: they do not run, and have written nothing for a while. It ends with the
// one that exceeds what one call takes: to look further is in vain.
const runsSQL = `
WITH RECURSIVE runs AS (
    SELECT $1::bigint AS job_id, ($2 - 1)::smallint AS attempt, 0 AS n, 0 AS chunks, 0 AS bytes,
        0 AS all_chunks, 0 AS all_bytes
    UNION ALL
    SELECT next.job_id, next.attempt, n + 1, size.chunks, size.bytes, all_chunks + size.chunks, all_bytes + size.bytes
    FROM runs
    CROSS JOIN LATERAL (
        SELECT job_id, attempt
        FROM forge_job_logs
        WHERE (job_id, attempt) > (runs.job_id, runs.attempt)
        ORDER BY job_id, attempt
        LIMIT 1) AS next
    LEFT JOIN river_job AS job ON job.id = next.job_id
    CROSS JOIN LATERAL (
        SELECT count(*)::int AS chunks, coalesce(sum(octet_length(chunk)), 0)::int AS bytes
        FROM (
            SELECT chunk
            FROM forge_job_logs
            WHERE job_id = next.job_id AND attempt = next.attempt
              AND NOT (job.state = 'running' AND job.attempt = next.attempt)
              AND (SELECT at FROM forge_job_logs WHERE job_id = next.job_id AND attempt = next.attempt
                   ORDER BY seq DESC LIMIT 1) < $4
            ORDER BY seq
            LIMIT $5) AS first) AS size
    WHERE n < $3 AND all_chunks < $5 AND all_bytes <= $6
)
SELECT job_id, attempt::int, chunks, bytes
FROM runs
WHERE n > 0
ORDER BY n`

// What is deleted is what is packed: nobody can come between.
const takeChunksSQL = `
DELETE FROM forge_job_logs
WHERE ctid = ANY (ARRAY (
    SELECT l.ctid
    FROM unnest($1::bigint[], $2::smallint[], $3::int[]) AS run (job_id, attempt, most)
    CROSS JOIN LATERAL (
        SELECT ctid
        FROM forge_job_logs
        WHERE job_id = run.job_id AND attempt = run.attempt
        ORDER BY seq
        LIMIT run.most) AS l))
RETURNING job_id, attempt::int, seq, at, stream, chunk, keep_until`

// Packs that overlap what was taken: a chunk came after its neighbours had been
// packed, or came twice.
const takePacksSQL = `
DELETE FROM forge_job_log_packs AS pack
USING unnest($1::bigint[], $2::smallint[], $3::int[], $4::int[]) AS run (job_id, attempt, first, last)
WHERE pack.job_id = run.job_id AND pack.attempt = run.attempt AND pack.first_seq <= run.last AND pack.last_seq >= run.first
RETURNING pack.job_id, pack.attempt::int, pack.keep_until, pack.pack`

const addPacksSQL = `
INSERT INTO forge_job_log_packs (job_id, attempt, first_seq, last_seq, chunks, text_bytes, at, keep_until, pack)
SELECT *
FROM unnest($1::bigint[], $2::smallint[], $3::int[], $4::int[], $5::int[], $6::int[], $7::timestamptz[],
    $8::timestamptz[], $9::bytea[])`

// Merged is what merging came to.
type Merged struct {
	Chunks    int64 `json:"chunks"`
	Packs     int64 `json:"packs"`
	TextBytes int64 `json:"text_bytes"`
	PackBytes int64 `json:"pack_bytes"`
	// Skipped are attempts that were left as they are.
	Skipped []*DamagedError `json:"-"`
}

// DamagedError says that a pack of an attempt cannot be read, so that nothing can
// be merged with it.
type DamagedError struct {
	RunKey
	Err error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("a pack of attempt %d of job %d cannot be read: %v", e.Attempt, e.JobID, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// Add adds what more merging came to.
func (m *Merged) Add(more Merged) {
	m.Chunks += more.Chunks
	m.Packs += more.Packs
	m.TextBytes += more.TextBytes
	m.PackBytes += more.PackBytes
	m.Skipped = append(m.Skipped, more.Skipped...)
}

// Merge packs the output of attempts that are over and whose last chunk is older
// than quiet, of at most most attempts from one on, and some megabytes of text.
// It returns the attempt to go on with, the zero RunKey when it came to the end.
//
// An attempt one of whose packs cannot be read is skipped: what else it wrote stays
// as it is, readable.
//
// The caller's transaction is the only one that packs: it is fenced. Whoever adds
// chunks meanwhile is not waited for and does not wait.
func Merge(ctx context.Context, tx pgx.Tx, from RunKey, quiet time.Time, most int) (next RunKey, done Merged, err error) {
	next, taken, err := findRuns(ctx, tx, from, quiet, most)
	if err != nil {
		return RunKey{}, done, fmt.Errorf("find output to merge: %w", err)
	}
	var skipped []*DamagedError
	for len(taken) > 0 {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
			done, err = mergeRuns(ctx, tx, taken)
			return err
		})
		damaged, ok := errors.AsType[*DamagedError](err)
		if err != nil && !ok {
			return RunKey{}, Merged{}, fmt.Errorf("merge output: %w", err)
		}
		if err == nil {
			break
		}
		done, skipped = Merged{}, append(skipped, damaged)
		taken = slices.DeleteFunc(taken, func(s share) bool { return s.RunKey == damaged.RunKey })
		if next == damaged.RunKey { // it was to go on with the rest of it
			next.Attempt++
		}
	}
	done.Skipped = skipped
	return next, done, nil
}

// share is how many chunks of an attempt are taken, from its first on.
type share struct {
	RunKey
	chunks int
}

func findRuns(ctx context.Context, tx pgx.Tx, from RunKey, quiet time.Time, most int) (next RunKey, taken []share, err error) {
	rows, err := tx.Query(ctx, runsSQL, from.JobID, from.Attempt, most, quiet, maxMergedChunks, maxMergedBytes)
	if err != nil {
		return RunKey{}, nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sized])
	if err != nil {
		return RunKey{}, nil, err
	}
	next, taken = ration(found)
	if next == (RunKey{}) && len(found) == most {
		last := found[len(found)-1]
		next = RunKey{JobID: last.JobID, Attempt: last.Attempt + 1}
	}
	return next, taken, nil
}

// sized is an attempt and its output, up to a bound; 0 while it is not over.
type sized struct {
	JobID                  int64
	Attempt, Chunks, Bytes int
}

// ration takes what is within the bounds, at least one chunk, and says where to
// go on; the zero RunKey: all was taken.
func ration(found []sized) (next RunKey, taken []share) {
	bytes, chunks := maxMergedBytes, maxMergedChunks
	for _, run := range found {
		key := RunKey{JobID: run.JobID, Attempt: run.Attempt}
		if run.Chunks == 0 {
			continue
		}
		fits := run.Bytes <= bytes && run.Chunks < chunks
		if !fits && len(taken) > 0 {
			return key, taken
		}
		if !fits { // as much of it as fits if all its chunks are alike
			few := run.Chunks * maxMergedBytes / max(run.Bytes, maxMergedBytes)
			return key, []share{{key, max(1, few)}}
		}
		taken = append(taken, share{key, run.Chunks})
		bytes, chunks = bytes-run.Bytes, chunks-run.Chunks
	}
	return RunKey{}, taken
}

// mergeRuns packs chunks and what of their attempts is packed around them.
func mergeRuns(ctx context.Context, tx pgx.Tx, shares []share) (done Merged, err error) {
	all := map[RunKey]*heap{}
	if err := takeChunks(ctx, tx, shares, all); err != nil {
		return done, err
	}
	if err := takePacks(ctx, tx, all); err != nil {
		return done, err
	}
	packs := packRows{}
	for key, h := range all {
		done.Chunks += int64(len(h.loose))
		for _, chunk := range h.loose {
			done.TextBytes += int64(len(chunk.Chunk))
		}
		if err := packs.add(key, h); err != nil {
			return done, fmt.Errorf("pack attempt %d of job %d: %w", key.Attempt, key.JobID, err)
		}
	}
	done.Packs = int64(len(packs.packs))
	for _, packed := range packs.packs {
		done.PackBytes += int64(len(packed))
	}
	_, err = tx.Exec(ctx, addPacksSQL, packs.jobIDs, packs.attempts, packs.firsts, packs.lasts, packs.chunks, packs.bytes,
		packs.times, packs.untils, packs.packs)
	return done, err
}

// heap is what is to be packed of one attempt.
type heap struct {
	packed, loose []LogChunk
	first, last   int // of the loose
	// until is when each chunk may go, unless the retention of all output says.
	until map[int]time.Time
}

func takeChunks(ctx context.Context, tx pgx.Tx, shares []share, all map[RunKey]*heap) error {
	jobIDs, attempts, most := make([]int64, len(shares)), make([]int16, len(shares)), make([]int32, len(shares))
	for i, s := range shares {
		jobIDs[i], attempts[i], most[i] = s.JobID, int16(s.Attempt), int32(s.chunks)
	}
	rows, err := tx.Query(ctx, takeChunksSQL, jobIDs, attempts, most)
	if err != nil {
		return err
	}
	var (
		key   RunKey
		chunk LogChunk
		until *time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&key.JobID, &key.Attempt, &chunk.Seq, &chunk.At, &chunk.Stream, &chunk.Chunk, &until}, func() error {
		h := all[key]
		if h == nil {
			h = &heap{first: chunk.Seq, last: chunk.Seq, until: map[int]time.Time{}}
			all[key] = h
		}
		h.first, h.last = min(h.first, chunk.Seq), max(h.last, chunk.Seq)
		h.loose = append(h.loose, chunk)
		if until != nil {
			h.until[chunk.Seq] = *until
		}
		return nil
	})
	return err
}

func takePacks(ctx context.Context, tx pgx.Tx, all map[RunKey]*heap) error {
	var jobIDs []int64
	var attempts []int16
	var firsts, lasts []int32
	for key, h := range all {
		jobIDs, attempts = append(jobIDs, key.JobID), append(attempts, int16(key.Attempt))
		firsts, lasts = append(firsts, int32(h.first)), append(lasts, int32(h.last))
	}
	rows, err := tx.Query(ctx, takePacksSQL, jobIDs, attempts, firsts, lasts)
	if err != nil {
		return err
	}
	var (
		key    RunKey
		until  *time.Time
		packed []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&key.JobID, &key.Attempt, &until, &packed}, func() error {
		chunks, err := unpack(packed, key.Attempt)
		if err != nil {
			return &DamagedError{key, err}
		}
		h := all[key]
		for _, chunk := range chunks {
			if until != nil {
				h.until[chunk.Seq] = *until
			}
		}
		h.packed = append(h.packed, chunks...)
		return nil
	})
	return err
}

// packRows are new rows, by column.
type packRows struct {
	jobIDs                       []int64
	attempts                     []int16
	firsts, lasts, chunks, bytes []int32
	times                        []time.Time
	untils                       []*time.Time
	packs                        [][]byte
}

func (r *packRows) add(key RunKey, h *heap) error {
	for _, part := range split(once(h.packed, h.loose), h.until) {
		packed, err := pack(part)
		if err != nil {
			return err
		}
		size, newest := 0, part[0].At
		var until *time.Time
		for _, chunk := range part {
			size += len(chunk.Chunk)
			if chunk.At.After(newest) {
				newest = chunk.At
			}
			if own, ok := h.until[chunk.Seq]; ok && (until == nil || own.After(*until)) {
				until = &own
			}
		}
		r.jobIDs, r.attempts = append(r.jobIDs, key.JobID), append(r.attempts, int16(key.Attempt))
		r.firsts, r.lasts = append(r.firsts, int32(part[0].Seq)), append(r.lasts, int32(part[len(part)-1].Seq))
		r.chunks, r.bytes = append(r.chunks, int32(len(part))), append(r.bytes, int32(size))
		r.times, r.untils, r.packs = append(r.times, newest), append(r.untils, until), append(r.packs, packed)
	}
	return nil
}

// split cuts the chunks of an attempt, in order, into those of one pack each. Those
// that have a retention of their own do not share one with others.
func split(chunks []LogChunk, until map[int]time.Time) (parts [][]LogChunk) {
	begin, size := 0, 0
	for i, chunk := range chunks {
		_, own := until[chunk.Seq]
		_, before := until[chunks[begin].Seq]
		span := chunk.At.Sub(chunks[begin].At).Abs()
		if i > begin && (size+len(chunk.Chunk) > maxPackBytes || span > maxPackSpan || own != before) {
			parts, begin, size = append(parts, chunks[begin:i]), i, 0
		}
		size += len(chunk.Chunk)
	}
	return append(parts, chunks[begin:])
}
