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
	// maxPackBytes is the maximum text in a pack: reading one chunk unpacks that
	// much.
	maxPackBytes = 1 << 20
	// maxPackSpan is the maximum time between the first and the last chunk of a
	// pack. A pack is deleted only when its last chunk may be deleted.
	maxPackSpan = time.Hour
	// maxMergedBytes and maxMergedChunks bound one call of Merge.
	maxMergedBytes  = 2 << 20
	maxMergedChunks = 4000
)

// Attempts with output, starting with one attempt, found by skipping from each to
// the next in the primary key, with the size of the output of ended attempts, up to
// a bound. Attempts have ended if they do not run and have written nothing for a
// while. The result ends with the attempt that exceeds the bounds of one call.
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

// Exactly the deleted chunks are packed, in one statement.
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

// Packs that overlap the chunks: a chunk was written after its neighbours were
// packed, or was written twice.
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

// Merged is the result of merging.
type Merged struct {
	Chunks    int64 `json:"chunks"`
	Packs     int64 `json:"packs"`
	TextBytes int64 `json:"text_bytes"`
	PackBytes int64 `json:"pack_bytes"`
	// Skipped are attempts that were not merged.
	Skipped []*DamagedError `json:"-"`
}

// DamagedError means that a pack of an attempt cannot be read, so that nothing can
// be merged with it.
type DamagedError struct {
	RunKey
	Err error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("a pack of attempt %d of job %d cannot be read: %v", e.Attempt, e.JobID, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// Add adds the result of further merging.
func (m *Merged) Add(more Merged) {
	m.Chunks += more.Chunks
	m.Packs += more.Packs
	m.TextBytes += more.TextBytes
	m.PackBytes += more.PackBytes
	m.Skipped = append(m.Skipped, more.Skipped...)
}

// Merge packs the output of ended attempts whose last chunk is older than quiet, of
// at most most attempts starting with one, and of some megabytes of text. It
// returns the attempt to continue with, and the zero RunKey at the end.
//
// An attempt with an unreadable pack is skipped: its other output does not change
// and can be read.
//
// The caller's transaction is fenced, so it is the only one that packs. It does not
// block transactions that add chunks, and does not wait for them.
func (s *Store) Merge(ctx context.Context, from RunKey, quiet time.Time, most int) (next RunKey, done Merged, err error) {
	next, taken, err := s.findRuns(ctx, from, quiet, most)
	if err != nil {
		return RunKey{}, done, fmt.Errorf("find output to merge: %w", err)
	}
	var skipped []*DamagedError
	for len(taken) > 0 {
		err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) (err error) {
			done, err = New(tx).mergeRuns(ctx, taken)
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
		if next == damaged.RunKey { // the rest of it was to be merged next
			next.Attempt++
		}
	}
	done.Skipped = skipped
	return next, done, nil
}

// share is the number of chunks of an attempt to take, starting with its first.
type share struct {
	RunKey
	chunks int
}

func (s *Store) findRuns(ctx context.Context, from RunKey, quiet time.Time, most int) (next RunKey, taken []share, err error) {
	rows, err := s.db.Query(ctx, runsSQL, from.JobID, from.Attempt, most, quiet, maxMergedChunks, maxMergedBytes)
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

// sized is an attempt with the size of its output, up to a bound; 0 if it has not
// ended.
type sized struct {
	JobID                  int64
	Attempt, Chunks, Bytes int
}

// ration selects chunks within the bounds, at least one, and returns the attempt to
// continue with; the zero RunKey: all were selected.
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
		if !fits { // an estimate that assumes chunks of equal size
			few := run.Chunks * maxMergedBytes / max(run.Bytes, maxMergedBytes)
			return key, []share{{key, max(1, few)}}
		}
		taken = append(taken, share{key, run.Chunks})
		bytes, chunks = bytes-run.Bytes, chunks-run.Chunks
	}
	return RunKey{}, taken
}

// mergeRuns packs chunks together with the packs of their attempts that overlap
// them.
func (s *Store) mergeRuns(ctx context.Context, shares []share) (done Merged, err error) {
	all := map[RunKey]*heap{}
	if err := s.takeChunks(ctx, shares, all); err != nil {
		return done, err
	}
	if err := s.takePacks(ctx, all); err != nil {
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
	_, err = s.db.Exec(ctx, addPacksSQL, packs.jobIDs, packs.attempts, packs.firsts, packs.lasts, packs.chunks, packs.bytes,
		packs.times, packs.untils, packs.packs)
	return done, err
}

// heap is the output of one attempt to be packed.
type heap struct {
	packed, loose []LogChunk
	first, last   int // of the loose chunks
	// until is when each chunk may be deleted, if not by the retention of all
	// output.
	until map[int]time.Time
}

func (s *Store) takeChunks(ctx context.Context, shares []share, all map[RunKey]*heap) error {
	jobIDs, attempts, most := make([]int64, len(shares)), make([]int16, len(shares)), make([]int32, len(shares))
	for i, s := range shares {
		jobIDs[i], attempts[i], most[i] = s.JobID, int16(s.Attempt), int32(s.chunks)
	}
	rows, err := s.db.Query(ctx, takeChunksSQL, jobIDs, attempts, most)
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

func (s *Store) takePacks(ctx context.Context, all map[RunKey]*heap) error {
	var jobIDs []int64
	var attempts []int16
	var firsts, lasts []int32
	for key, h := range all {
		jobIDs, attempts = append(jobIDs, key.JobID), append(attempts, int16(key.Attempt))
		firsts, lasts = append(firsts, int32(h.first)), append(lasts, int32(h.last))
	}
	rows, err := s.db.Query(ctx, takePacksSQL, jobIDs, attempts, firsts, lasts)
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

// split divides the chunks of an attempt, in order, into packs. Chunks with their
// own retention do not share a pack with others.
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
