package linepack

import (
	"encoding/binary"
	"strconv"
	"strings"
)

const (
	// maxText is the most that is encoded and decoded at a time, in bytes.
	maxText = 1 << 22
	// A text with more templates than fewTemplates, and more than one for each
	// linesATemplate lines, is none of sentences with numbers.
	fewTemplates   = 256
	linesATemplate = 4
	// gap is what a template has for a value.
	gap = 0
	// maxDigits always fit into an int64.
	maxDigits = 18
	// inText and asNumbers are the kinds of values.
	inText    = 0
	asNumbers = 1
)

// Append appends the lines of texts by columns. It returns false, and to as it was,
// when nothing would be gained: the lines have little in common. Nor does it take
// texts with a NUL, or more than 4 MiB.
func Append(to []byte, texts []string) ([]byte, bool) {
	size := 0
	for _, text := range texts {
		size += len(text)
		if size > maxText || strings.IndexByte(text, gap) >= 0 {
			return to, false
		}
	}
	s := sorter{ids: map[string]int{}}
	lines := make([]int64, len(texts))
	for i, text := range texts {
		for line := range strings.Lines(text) {
			lines[i]++
			if !s.add(line) {
				return to, false
			}
		}
	}
	to = AppendColumn(binary.AppendUvarint(to, uint64(size)), lines)
	return s.append(to), true
}

// sorter sorts lines by their templates.
type sorter struct {
	ids       map[string]int
	templates []*template
	order     []int64 // of each line its template
	shape     []byte
	values    []string
}

type template struct {
	shape string
	gaps  [][]string // of each gap its values
}

// add returns false once there are too many templates.
func (s *sorter) add(line string) bool {
	s.splitNumbers(line)
	id, known := s.ids[string(s.shape)]
	if !known {
		id = len(s.templates)
		if id > fewTemplates+len(s.order)/linesATemplate {
			return false
		}
		t := &template{shape: string(s.shape), gaps: make([][]string, len(s.values))}
		s.ids[t.shape], s.templates = id, append(s.templates, t)
	}
	gaps := s.templates[id].gaps
	for i, value := range s.values {
		gaps[i] = append(gaps[i], value)
	}
	s.order = append(s.order, int64(id))
	return true
}

// splitNumbers sets the shape and the values of a line.
func (s *sorter) splitNumbers(line string) {
	s.shape, s.values = s.shape[:0], s.values[:0]
	for line != "" {
		length, digits, hex := word(line)
		switch {
		case length == 0:
			length = 1
			s.shape = append(s.shape, line[0])
		case digits == 0:
			s.shape = append(s.shape, line[:length]...)
		case hex:
			s.take(line[:length])
		default:
			s.takeNumbers(line[:length])
		}
		line = line[length:]
	}
}

func (s *sorter) take(value string) {
	s.shape, s.values = append(s.shape, gap), append(s.values, value)
}

func (s *sorter) takeNumbers(word string) {
	for word != "" {
		digits := 0
		for digits < len(word) && class[word[digits]] == digit {
			digits++
		}
		if digits > 0 {
			s.take(word[:digits])
			word = word[digits:]
			continue
		}
		s.shape, word = append(s.shape, word[0]), word[1:]
	}
}

// The classes of bytes. Words are made of what is not other.
const (
	other = iota
	digit
	hexLetter
	letter
)

var class = func() (of [256]byte) {
	for b := range of {
		switch {
		case b >= '0' && b <= '9':
			of[b] = digit
		case b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F':
			of[b] = hexLetter
		case b >= 'g' && b <= 'z' || b >= 'G' && b <= 'Z':
			of[b] = letter
		}
	}
	return of
}()

// word looks at the word with which a line begins: how long it is, how many digits
// it has, and whether it may be a hexadecimal number, which stays in one piece.
func word(line string) (length, digits int, hex bool) {
	hex = true
	for length < len(line) {
		switch class[line[length]] {
		case other:
			return length, digits, hex
		case digit:
			digits++
		case letter:
			hex = false
		}
		length++
	}
	return length, digits, hex
}

func (s *sorter) append(to []byte) []byte {
	to = binary.AppendUvarint(to, uint64(len(s.templates)))
	for _, t := range s.templates {
		to = append(binary.AppendUvarint(to, uint64(len(t.shape))), t.shape...)
	}
	to = AppendColumn(to, s.order)
	for _, t := range s.templates {
		for _, values := range t.gaps {
			to = appendValues(to, values)
		}
	}
	return to
}

func appendValues(to []byte, values []string) []byte {
	if numbers, width, ok := parse(values); ok {
		return AppendColumn(append(to, asNumbers, byte(width)), numbers)
	}
	to = append(to, inText)
	for _, value := range values {
		to = append(append(to, value...), '\n')
	}
	return to
}

// parse makes numbers of values when these can be made of them again: all are
// decimal, and have the same width or no leading zeros (width 0).
func parse(values []string) (numbers []int64, width int, ok bool) {
	width = len(values[0])
	leading := false
	numbers = make([]int64, len(values))
	for i, value := range values {
		if len(value) > maxDigits {
			return nil, 0, false
		}
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil {
			return nil, 0, false
		}
		if len(value) != width {
			width = 0
		}
		leading = leading || len(value) > 1 && value[0] == '0'
		numbers[i] = int64(n)
	}
	return numbers, width, width > 0 || !leading
}

// appendValue appends a number as it was.
func appendValue(to []byte, n int64, width int) []byte {
	var buffer [maxDigits + 2]byte
	digits := strconv.AppendInt(buffer[:0], n, 10)
	for range width - len(digits) {
		to = append(to, '0')
	}
	return append(to, digits...)
}
