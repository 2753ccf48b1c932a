package jobstore

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/forge-scheduler/forge/internal/linepack"
)

// A pack is a zstd frame of one of these, whichever becomes smaller.
//
//	1, number of chunks
//	of each chunk: step from the number before, step from the time before in
//	               microseconds, stream, length of the text
//	the texts, one after the other
//
//	2, number of chunks
//	columns: numbers, times in microseconds, streams
//	the texts, as linepack writes them
//
// Numbers are varints, columns those of linepack. The texts stand together because
// they compress better so.
const (
	formatPlain   = 1
	formatColumns = 2
)

// clearly is how many times smaller columns are that compress better in any case, as
// far as anybody knows: who needs not try both saves a third of the processor's time.
const clearly = 4

// maxColumnChunks are in a pack by columns: one that is damaged shall not claim more.
const maxColumnChunks = 1 << 20

// maxUnpacked bounds what a damaged pack can make of itself in memory.
const maxUnpacked = 1 << 28

// packStreams are numbered by their places, which stay.
var packStreams = []string{StreamStdout, StreamStderr, StreamSystem}

// Both can be used by many at once.
var (
	compressor = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression),
			zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	})
	decompressor = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxUnpacked))
	})
)

// pack compresses chunks of one attempt, in the order of their numbers.
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

// byColumns returns false for chunks that gain nothing by it.
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

// unpack returns what pack was given.
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

// packReader takes a plain pack apart. Once something is missing it gives nothing more.
type packReader struct {
	rest    []byte
	damaged bool
}

func (r *packReader) number() int64 {
	n, size := binary.Varint(r.rest)
	r.advance(size)
	return n
}

// length is a number of things that take a byte each or more.
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
