package jobstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
)

// A pack is a zstd frame of
//
//	version byte, number of chunks
//	of each chunk: step from the number before, step from the time before in
//	               microseconds, stream, length of the text
//	the texts, one after the other
//
// Numbers are varints. The texts stand together because they compress better so.
const packVersion = 1

// maxUnpacked bounds what a damaged pack can make of itself in memory.
const maxUnpacked = 1 << 28

var errDamaged = errors.New("damaged")

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
	plain := binary.AppendUvarint([]byte{packVersion}, uint64(len(chunks)))
	seq, at := 0, int64(0)
	for _, chunk := range chunks {
		stream := slices.Index(packStreams, chunk.Stream)
		if stream < 0 {
			return nil, fmt.Errorf("chunk %d is of the unknown stream %q", chunk.Seq, chunk.Stream)
		}
		plain = binary.AppendVarint(plain, int64(chunk.Seq-seq))
		plain = binary.AppendVarint(plain, chunk.At.UnixMicro()-at)
		plain = append(plain, byte(stream))
		plain = binary.AppendUvarint(plain, uint64(len(chunk.Chunk)))
		seq, at = chunk.Seq, chunk.At.UnixMicro()
	}
	for _, chunk := range chunks {
		plain = append(plain, chunk.Chunk...)
	}
	return zip.EncodeAll(plain, nil), nil
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
		return nil, errDamaged
	}
	if plain[0] != packVersion {
		return nil, fmt.Errorf("of format %d, which a newer forge reads", plain[0])
	}
	r := packReader{rest: plain[1:]}
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
		return nil, errDamaged
	}
	return chunks, nil
}

// packReader takes a pack apart. Once something is missing it gives nothing more.
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
