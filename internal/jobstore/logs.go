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

// The database numbers the chunks: an attempt that was interrupted by a drain
// and one that was snoozed run again under the same number, and go on where the
// first run's output ended.
const appendLogsSQL = `
INSERT INTO forge_job_logs (job_id, attempt, seq, at, stream, chunk)
SELECT $1, $2, last.seq + new.n, new.at, new.stream, new.chunk
FROM unnest($3::timestamptz[], $4::text[], $5::text[]) WITH ORDINALITY AS new (at, stream, chunk, n),
     (SELECT coalesce(max(seq), 0) AS seq FROM forge_job_logs WHERE job_id = $1 AND attempt = $2) AS last`

const logsSQL = `
SELECT attempt::int, seq, at, stream, chunk
FROM forge_job_logs
WHERE job_id = $1 AND attempt = $2 AND seq > $3
ORDER BY seq
LIMIT $4`

// maxChunks bounds one answer of Logs.
const maxChunks = 2000

// AppendLogs adds chunks to the output of one attempt, after those already
// there, in one statement. Seq and Attempt of the chunks are ignored. Chunks
// must be valid UTF-8 without NUL.
func AppendLogs(ctx context.Context, db Execer, jobID int64, attempt int, chunks []LogChunk) error {
	times := make([]time.Time, len(chunks))
	streams := make([]string, len(chunks))
	texts := make([]string, len(chunks))
	for i, chunk := range chunks {
		times[i], streams[i], texts[i] = chunk.At, chunk.Stream, chunk.Chunk
	}
	if _, err := db.Exec(ctx, appendLogsSQL, jobID, attempt, times, streams, texts); err != nil {
		return fmt.Errorf("append output of job %d: %w", jobID, err)
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
