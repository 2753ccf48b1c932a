package linepack

import (
	"encoding/binary"
	"math/bits"
)

// The kinds of a column.
const (
	plainNumbers = 0
	steps        = 1
)

// AppendColumn appends numbers so that they compress well: as they are, or as the
// steps between them when those are smaller.
func AppendColumn(to []byte, numbers []int64) []byte {
	if len(numbers) == 0 {
		return to
	}
	between, plainBits, stepBits := make([]uint64, len(numbers)-1), 0, 0
	for i := range between {
		between[i] = zigzag(numbers[i+1] - numbers[i])
		plainBits += bits.Len64(uint64(numbers[i+1]))
		stepBits += bits.Len64(between[i])
	}
	if stepBits <= plainBits {
		to = binary.AppendVarint(append(to, steps), numbers[0])
		return appendPlanes(to, between)
	}
	plain := make([]uint64, len(numbers))
	for i, n := range numbers {
		plain[i] = uint64(n)
	}
	return appendPlanes(append(to, plainNumbers), plain)
}

// appendPlanes puts bytes of the same weight side by side.
func appendPlanes(to []byte, numbers []uint64) []byte {
	all := uint64(0)
	for _, n := range numbers {
		all |= n
	}
	planes := (bits.Len64(all) + 7) / 8
	to = append(to, byte(planes))
	for plane := planes - 1; plane >= 0; plane-- {
		for _, n := range numbers {
			to = append(to, byte(n>>(8*plane)))
		}
	}
	return to
}

// zigzag makes small numbers of those near 0.
func zigzag(n int64) uint64 { return uint64(n<<1) ^ uint64(n>>63) }

func unzigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

// A Reader takes apart what was appended. Once something is missing it gives
// nothing more, and Err says so.
type Reader struct {
	rest    []byte
	damaged bool
}

// NewReader returns a Reader of all that is encoded.
func NewReader(encoded []byte) *Reader { return &Reader{rest: encoded} }

// Err is ErrDamaged when something was missing.
func (r *Reader) Err() error {
	if r.damaged {
		return ErrDamaged
	}
	return nil
}

// Column returns what AppendColumn was given: so many numbers, 0 each once
// something is missing.
func (r *Reader) Column(rows int) []int64 {
	numbers := make([]int64, rows)
	if rows == 0 {
		return numbers
	}
	switch r.byte() {
	case plainNumbers:
		for i, n := range r.planes(rows) {
			numbers[i] = int64(n)
		}
	case steps:
		numbers[0] = r.varint()
		for i, step := range r.planes(rows - 1) {
			numbers[i+1] = numbers[i] + unzigzag(step)
		}
	default:
		r.fail()
	}
	return numbers
}

func (r *Reader) planes(rows int) []uint64 {
	numbers := make([]uint64, rows)
	planes := int(r.byte())
	if planes > 8 {
		r.fail()
		return numbers
	}
	for range planes {
		for i, b := range r.Take(rows) {
			numbers[i] = numbers[i]<<8 | uint64(b)
		}
	}
	return numbers
}

// Length returns a number that is at most so large.
func (r *Reader) Length(most int) int {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > uint64(most) {
		r.fail()
		return 0
	}
	r.rest = r.rest[size:]
	return int(n)
}

// Take returns so many bytes, or none.
func (r *Reader) Take(length int) []byte {
	if length > len(r.rest) {
		r.fail()
		return nil
	}
	head := r.rest[:length]
	r.rest = r.rest[length:]
	return head
}

func (r *Reader) byte() byte {
	if head := r.Take(1); len(head) == 1 {
		return head[0]
	}
	return 0
}

func (r *Reader) varint() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *Reader) fail() { r.damaged, r.rest = true, nil }
