package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// attemptLines are written by one attempt.
	attemptLines = 1000
	fewLines     = 20
	chunkBytes   = 64 << 10
)

// source gives the chunks of one attempt after another to CopyFrom.
type source struct {
	attempts  int
	began     time.Time
	random    *rand.Rand
	attempt   int
	seq       int
	at        time.Time // of the line
	written   time.Time // when the chunk was
	chunks    []string
	textBytes int64
	lines     int
	rows      int64
}

var columns = []string{"job_id", "attempt", "seq", "at", "stream", "chunk"}

var _ pgx.CopyFromSource = (*source)(nil)

// newSource gives the same for the same arguments. The attempts were over half an
// hour before now.
func newSource(lines int, now time.Time) *source {
	return &source{
		attempts: lines / attemptLines, began: now.Add(-30 * time.Minute),
		random: rand.New(rand.NewPCG(1, 2)), //nolint:gosec // said above
	}
}

// Next makes the next chunk ready, written a random time after the one before.
func (s *source) Next() bool {
	switch {
	case len(s.chunks) > 1:
		s.chunks, s.seq = s.chunks[1:], s.seq+1
	case s.attempt < s.attempts:
		s.attempt, s.seq, s.at, s.written = s.attempt+1, 1, s.began, s.began
		s.chunks = s.write()
	default:
		return false
	}
	s.written = s.written.Add(time.Duration(len(s.chunks[0])*100+s.random.IntN(5000)) * time.Microsecond)
	s.textBytes += int64(len(s.chunks[0]))
	s.rows++
	return true
}

// Values are those of columns.
func (s *source) Values() ([]any, error) {
	return []any{int64(s.attempt), int16(1), int32(s.seq), s.written, "stdout", s.chunks[0]}, nil
}

// Err is always nil.
func (s *source) Err() error { return nil }

// write returns an attempt's output: of every third in a chunk a line, of the next in
// chunks of twenty lines, of the others in large ones.
func (s *source) write() (chunks []string) {
	var chunk strings.Builder
	inChunk := 0
	for range attemptLines {
		s.line(&chunk)
		s.lines++
		inChunk++
		full := [...]bool{true, inChunk == fewLines, chunk.Len() >= chunkBytes}[s.attempt%3]
		if full {
			chunks = append(chunks, chunk.String())
			chunk.Reset()
			inChunk = 0
		}
	}
	if chunk.Len() > 0 {
		chunks = append(chunks, chunk.String())
	}
	return chunks
}

// line writes what a service logs: every value that differs from line to line is
// random.
func (s *source) line(to *strings.Builder) {
	s.at = s.at.Add(time.Duration(s.random.IntN(20_000)) * time.Microsecond)
	fmt.Fprintf(to, "%s ", s.at.UTC().Format("2006-01-02T15:04:05.000Z"))
	switch s.random.IntN(6) {
	case 0:
		fmt.Fprintf(to, "INFO  request handled method=GET path=/api/v1/orders/%d status=200 duration=%dms\n", s.random.IntN(1_000_000), s.random.IntN(500))
	case 1:
		fmt.Fprintf(to, "INFO  batch %d imported: %d rows in %.2fs\n", s.random.IntN(1000), s.random.IntN(10_000), s.random.Float64()*10)
	case 2:
		fmt.Fprintf(to, "DEBUG cache miss for key user:%d:profile, loading from the database\n", s.random.IntN(100_000))
	case 3:
		fmt.Fprintf(to, "WARN  retrying connection to 10.0.%d.%d:5432 after %d attempts: connection reset by peer\n", s.random.IntN(4), s.random.IntN(256), s.random.IntN(5))
	case 4:
		fmt.Fprintf(to, "INFO  uploaded report-%d.csv to the archive (%d bytes)\n", s.random.IntN(10_000), s.random.IntN(10_000_000))
	default:
		fmt.Fprintf(to, "INFO  step %d of 1000 finished, queue has %d items left, worker=%d\n", s.random.IntN(1000), s.random.IntN(5000), s.random.IntN(8))
	}
}
