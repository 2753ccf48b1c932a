package jobstore

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/forge-scheduler/forge/internal/jobstore/linepack"
)

// A pack is a zstd frame of the smaller of two formats:
//
//	1, number of chunks
//	per chunk: difference to the previous number, difference to the previous time in
//	           microseconds, stream, length of the text
//	the texts, one after the other
//
//	2, number of chunks
//	columns: numbers, times in microseconds, streams
//	the texts, as linepack writes them
//
// Numbers are varints; linepack encodes columns. The texts are adjacent because they
// compress better that way.
const (
	formatPlain   = 1
	formatColumns = 2
)

// clearly is the ratio from which the column format is expected to compress better
// than the plain one. Not trying both formats saves a third of the processor time.
const clearly = 4

// maxColumnChunks bounds the chunks of a pack in the column format, so that a
// damaged pack cannot claim more.
const maxColumnChunks = 1 << 20

// maxUnpacked bounds the memory that a damaged pack can use.
const maxUnpacked = 1 << 28

// packStreams are numbered by their index, which must not change.
var packStreams = []string{StreamStdout, StreamStderr, StreamSystem}

// Both are safe for concurrent use.
var (
	compressor = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression),
			zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	})
	decompressor = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxUnpacked))
	})
)

// pack compresses chunks of one attempt, ordered by their numbers.
func pack(chunks []LogChunk) ([]byte, error) {
	zip, err := compressor()
	if err != nil {
		return nil, err
	}
	streams := make([]int64, len(chunks))
	for i, chunk := range chunks {
		stream := slices.Index(packStreams, chunk.Stream)
		if stream < 0 {
			return nil, fmt.Errorf("chunk %d is of the unknown stream %q", chunk.Seq, chunk.Stream)
		}
		streams[i] = int64(stream)
	}
	plain := plain(chunks, streams)
	columns, ok := byColumns(chunks, streams)
	if !ok {
		return zip.EncodeAll(plain, nil), nil
	}
	packed := zip.EncodeAll(columns, nil)
	if len(columns) > len(plain)/clearly {
		if smaller := zip.EncodeAll(plain, nil); len(smaller) < len(packed) {
			return smaller, nil
		}
	}
	return packed, nil
}

func plain(chunks []LogChunk, streams []int64) []byte {
	out := binary.AppendUvarint([]byte{formatPlain}, uint64(len(chunks)))
	seq, at := 0, int64(0)
	for i, chunk := range chunks {
		out = binary.AppendVarint(out, int64(chunk.Seq-seq))
		out = binary.AppendVarint(out, chunk.At.UnixMicro()-at)
		out = append(out, byte(streams[i]))
		out = binary.AppendUvarint(out, uint64(len(chunk.Chunk)))
		seq, at = chunk.Seq, chunk.At.UnixMicro()
	}
	for _, chunk := range chunks {
		out = append(out, chunk.Chunk...)
	}
	return out
}

// byColumns returns false if the chunks gain nothing from it.
func byColumns(chunks []LogChunk, streams []int64) ([]byte, bool) {
	if len(chunks) > maxColumnChunks {
		return nil, false
	}
	seqs, times, texts := make([]int64, len(chunks)), make([]int64, len(chunks)), make([]string, len(chunks))
	for i, chunk := range chunks {
		seqs[i], times[i], texts[i] = int64(chunk.Seq), chunk.At.UnixMicro(), chunk.Chunk
	}
	out := binary.AppendUvarint([]byte{formatColumns}, uint64(len(chunks)))
	for _, column := range [][]int64{seqs, times, streams} {
		out = linepack.AppendColumn(out, column)
	}
	return linepack.Append(out, texts)
}

// unpack returns the chunks that were passed to pack.
func unpack(packed []byte, attempt int) ([]LogChunk, error) {
	unzip, err := decompressor()
	if err != nil {
		return nil, err
	}
	plain, err := unzip.DecodeAll(packed, nil)
	if err != nil {
		return nil, err
	}
	if len(plain) == 0 {
		return nil, linepack.ErrDamaged
	}
	switch plain[0] {
	case formatPlain:
		return readPlain(plain[1:], attempt)
	case formatColumns:
		return readColumns(plain[1:], attempt)
	}
	return nil, fmt.Errorf("of format %d, which a newer forge reads", plain[0])
}

func readPlain(plain []byte, attempt int) ([]LogChunk, error) {
	r := packReader{rest: plain}
	count := r.length()
	chunks := make([]LogChunk, count)
	lengths := make([]int, count)
	seq, at := 0, int64(0)
	for i := range chunks {
		seq += int(r.number())
		at += r.number()
		chunks[i] = LogChunk{Attempt: attempt, Seq: seq, At: time.UnixMicro(at), Stream: r.stream()}
		lengths[i] = r.length()
	}
	for i, length := range lengths {
		chunks[i].Chunk = string(r.take(length))
	}
	if r.damaged || len(r.rest) > 0 {
		return nil, linepack.ErrDamaged
	}
	return chunks, nil
}

func readColumns(columns []byte, attempt int) ([]LogChunk, error) {
	r := linepack.NewReader(columns)
	count := r.Length(maxColumnChunks)
	seqs, times, streams := r.Column(count), r.Column(count), r.Column(count)
	texts, err := r.Texts(count)
	if err != nil {
		return nil, err
	}
	chunks := make([]LogChunk, count)
	for i := range chunks {
		if streams[i] < 0 || streams[i] >= int64(len(packStreams)) {
			return nil, linepack.ErrDamaged
		}
		chunks[i] = LogChunk{
			Attempt: attempt, Seq: int(seqs[i]), At: time.UnixMicro(times[i]), Stream: packStreams[streams[i]], Chunk: texts[i],
		}
	}
	return chunks, nil
}

// packReader reads the plain format. After an error it returns only zero values.
type packReader struct {
	rest    []byte
	damaged bool
}

func (r *packReader) number() int64 {
	n, size := binary.Varint(r.rest)
	r.advance(size)
	return n
}

// length reads the number of elements that take at least one byte each.
func (r *packReader) length() int {
	n, size := binary.Uvarint(r.rest)
	r.advance(size)
	if n > uint64(len(r.rest)) {
		r.damaged, r.rest, n = true, nil, 0
	}
	return int(n)
}

func (r *packReader) stream() string {
	if head := r.take(1); len(head) == 1 && int(head[0]) < len(packStreams) {
		return packStreams[head[0]]
	}
	r.damaged = true
	return ""
}

func (r *packReader) advance(size int) {
	if size <= 0 {
		r.damaged, r.rest = true, nil
		return
	}
	r.rest = r.rest[size:]
}

func (r *packReader) take(length int) []byte {
	if length > len(r.rest) {
		r.damaged, r.rest = true, nil
		return nil
	}
	head := r.rest[:length]
	r.rest = r.rest[length:]
	return head
}
