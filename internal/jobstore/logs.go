package jobstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const lastSeqsSQL = `
SELECT job_id, attempt, seq
FROM unnest($1::bigint[], $2::smallint[]) AS run (job_id, attempt)
CROSS JOIN LATERAL (
    SELECT greatest(
        (SELECT max(seq) FROM forge_job_logs WHERE job_id = run.job_id AND attempt = run.attempt),
        (SELECT max(last_seq) FROM forge_job_log_packs WHERE job_id = run.job_id AND attempt = run.attempt)) AS seq
) AS last
WHERE seq IS NOT NULL`

// The commit does not wait for the disk: the later commit of the job's outcome
// does, and flushes this one as well. An existing chunk was written by a statement
// whose response was lost.
const appendLogsSQL = `
WITH hurried AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
INSERT INTO forge_job_logs (job_id, attempt, seq, at, stream, chunk, keep_until)
SELECT new.*
FROM hurried, unnest(
    $1::bigint[], $2::smallint[], $3::integer[], $4::timestamptz[], $5::text[], $6::text[], $7::timestamptz[]) AS new
ON CONFLICT DO NOTHING`

// One statement reads one snapshot, so that a chunk that is being packed appears
// once.
const logsSQL = `
(SELECT seq, at, stream, chunk, NULL::integer AS last_seq, NULL::bytea AS pack
FROM forge_job_logs
WHERE job_id = $1 AND attempt = $2 AND seq > $3
ORDER BY seq
LIMIT $4)
UNION ALL
(SELECT first_seq, at, '', '', last_seq, pack
FROM forge_job_log_packs
WHERE job_id = $1 AND attempt = $2 AND last_seq > $3
ORDER BY first_seq
LIMIT $5)`

const (
	// maxChunks bounds one result of Logs.
	maxChunks = 2000
	// maxPacks bounds the packs that are unpacked for it.
	maxPacks = 4
)

// LastSeqs returns the number of the last chunk of each attempt that has output.
func (s *Store) LastSeqs(ctx context.Context, runs []RunKey) (map[RunKey]int, error) {
	ids, attempts := make([]int64, len(runs)), make([]int16, len(runs))
	for i, run := range runs {
		ids[i], attempts[i] = run.JobID, int16(run.Attempt)
	}
	last := map[RunKey]int{}
	rows, err := s.db.Query(ctx, lastSeqsSQL, ids, attempts)
	if err != nil {
		return nil, fmt.Errorf("read where output ends: %w", err)
	}
	var run RunKey
	var seq int
	_, err = pgx.ForEachRow(rows, []any{&run.JobID, &run.Attempt, &seq}, func() error {
		last[run] = seq
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read where output ends: %w", err)
	}
	return last, nil
}

// AppendLogs adds numbered chunks of several attempts in one statement. Existing
// chunks do not change. The text must be valid UTF-8 without NUL.
func (s *Store) AppendLogs(ctx context.Context, rows []LogRow) error {
	var (
		ids      = make([]int64, len(rows))
		attempts = make([]int16, len(rows))
		seqs     = make([]int32, len(rows))
		times    = make([]time.Time, len(rows))
		streams  = make([]string, len(rows))
		texts    = make([]string, len(rows))
		until    = make([]*time.Time, len(rows))
	)
	for i, row := range rows {
		ids[i], attempts[i], seqs[i] = row.JobID, int16(row.Attempt), int32(row.Seq)
		times[i], streams[i], texts[i] = row.At, row.Stream, row.Chunk
		if !row.KeepUntil.IsZero() {
			until[i] = &row.KeepUntil
		}
	}
	if _, err := s.db.Exec(ctx, appendLogsSQL, ids, attempts, seqs, times, streams, texts, until); err != nil {
		return fmt.Errorf("append output of jobs: %w", err)
	}
	return nil
}

// Logs returns the chunks of one attempt after afterSeq (0: from the start), at
// most 2,000; call again with the last one's Seq for more. Packed chunks are
// returned unchanged; a damaged pack is replaced by a remark.
func (s *Store) Logs(ctx context.Context, jobID int64, attempt, afterSeq int) ([]LogChunk, error) {
	chunks, err := s.readLogs(ctx, jobID, attempt, afterSeq)
	if err != nil {
		return nil, fmt.Errorf("read output of job %d: %w", jobID, err)
	}
	return chunks, nil
}

func (s *Store) readLogs(ctx context.Context, jobID int64, attempt, afterSeq int) ([]LogChunk, error) {
	rows, err := s.db.Query(ctx, logsSQL, jobID, attempt, afterSeq, maxChunks, maxPacks)
	if err != nil {
		return nil, err
	}
	p := page{attempt: attempt, packed: []LogChunk{}, until: math.MaxInt}
	var (
		chunk   LogChunk
		lastSeq *int
		packed  []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&chunk.Seq, &chunk.At, &chunk.Stream, &chunk.Chunk, &lastSeq, &packed}, func() error {
		if lastSeq == nil {
			p.addLoose(chunk)
			return nil
		}
		p.addPack(chunk, *lastSeq, packed)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p.after(afterSeq), nil
}

// page is the output of an attempt that one statement returned.
type page struct {
	attempt int
	packed  []LogChunk
	loose   []LogChunk
	packs   int
	// until is the number up to which no chunk is missing.
	until int
}

func (p *page) addLoose(chunk LogChunk) {
	chunk.Attempt = p.attempt
	if p.loose = append(p.loose, chunk); len(p.loose) == maxChunks {
		p.until = min(p.until, chunk.Seq)
	}
}

// addPack unpacks the chunks from the head's number on. Unreadable chunks are
// replaced by one remark, so that the others can be read.
func (p *page) addPack(head LogChunk, lastSeq int, packed []byte) {
	chunks, err := unpack(packed, p.attempt)
	if err != nil {
		chunks = []LogChunk{{
			Attempt: p.attempt, Seq: lastSeq, At: head.At, Stream: StreamSystem,
			Chunk: fmt.Sprintf("the output of chunks %d to %d cannot be read: %v\n", head.Seq, lastSeq, err),
		}}
	}
	p.packed = append(p.packed, chunks...)
	if p.packs++; p.packs == maxPacks {
		p.until = min(p.until, lastSeq)
	}
}

func (p *page) after(afterSeq int) []LogChunk {
	chunks := slices.DeleteFunc(once(p.packed, p.loose), func(c LogChunk) bool {
		return c.Seq <= afterSeq || c.Seq > p.until
	})
	return chunks[:min(len(chunks), maxChunks)]
}

// once merges packed and loose chunks of an attempt in the order of their numbers,
// without duplicates.
func once(packed, loose []LogChunk) []LogChunk {
	all := append(slices.Clip(packed), loose...)
	slices.SortStableFunc(all, func(a, b LogChunk) int { return cmp.Compare(a.Seq, b.Seq) })
	return slices.CompactFunc(all, func(a, b LogChunk) bool { return a.Seq == b.Seq })
}
