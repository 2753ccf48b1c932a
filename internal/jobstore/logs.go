package jobstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Execer is what AppendLogs writes through.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

const lastSeqsSQL = `
SELECT run.job_id, run.attempt, last.seq
FROM unnest($1::bigint[], $2::smallint[]) AS run (job_id, attempt)
CROSS JOIN LATERAL (
    SELECT seq FROM forge_job_logs
    WHERE job_id = run.job_id AND attempt = run.attempt
    ORDER BY seq DESC
    LIMIT 1) AS last`

// The commit need not wait for the disk: that of the job's outcome, which comes
// later, does, and takes this one along. A chunk that is there already came with
// a statement whose answer was lost.
const appendLogsSQL = `
WITH hurried AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
INSERT INTO forge_job_logs (job_id, attempt, seq, at, stream, chunk, keep_until)
SELECT new.*
FROM hurried, unnest(
    $1::bigint[], $2::smallint[], $3::integer[], $4::timestamptz[], $5::text[], $6::text[], $7::timestamptz[]) AS new
ON CONFLICT DO NOTHING`

const logsSQL = `
SELECT attempt::int, seq, at, stream, chunk
FROM forge_job_logs
WHERE job_id = $1 AND attempt = $2 AND seq > $3
ORDER BY seq
LIMIT $4`

// maxChunks bounds one answer of Logs.
const maxChunks = 2000

// LastSeqs returns the number of the last chunk of each attempt that has output.
func LastSeqs(ctx context.Context, db Queryer, runs []RunKey) (map[RunKey]int, error) {
	ids, attempts := make([]int64, len(runs)), make([]int16, len(runs))
	for i, run := range runs {
		ids[i], attempts[i] = run.JobID, int16(run.Attempt)
	}
	last := map[RunKey]int{}
	rows, err := db.Query(ctx, lastSeqsSQL, ids, attempts)
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

// AppendLogs adds numbered chunks, of many attempts, in one statement. Those that
// are there already stay as they are. The text must be valid UTF-8 without NUL.
func AppendLogs(ctx context.Context, db Execer, rows []LogRow) error {
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
	if _, err := db.Exec(ctx, appendLogsSQL, ids, attempts, seqs, times, streams, texts, until); err != nil {
		return fmt.Errorf("append output of jobs: %w", err)
	}
	return nil
}

// Logs returns the chunks of one attempt that follow afterSeq (0: from the
// start), at most 2,000; call again with the last one's Seq for more.
func Logs(ctx context.Context, db Queryer, jobID int64, attempt, afterSeq int) ([]LogChunk, error) {
	rows, err := db.Query(ctx, logsSQL, jobID, attempt, afterSeq, maxChunks)
	if err != nil {
		return nil, fmt.Errorf("read output of job %d: %w", jobID, err)
	}
	chunks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[LogChunk])
	if err != nil {
		return nil, fmt.Errorf("read output of job %d: %w", jobID, err)
	}
	return chunks, nil
}
