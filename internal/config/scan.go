package config

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a file, checked before the decoder sees it: the decoder recurses
// without bound, and 40 kB of nested tables cost it gigabytes.
const (
	maxFileSize  = 1 << 20
	maxNesting   = 32
	maxKeyLength = 512
	// maxElements bounds the elements of one array that get a place.
	maxElements = 1000
)

var (
	errTooDeep   = errors.New("nesting too deep")
	errKeyLength = errors.New("key too long")
	errSyntax    = errors.New("not valid TOML")
)

// scanner walks over TOML text just well enough to know where keys stand. It is
// no validator: what it accepts and the decoder does not is the decoder's to
// report.
type scanner struct {
	text  string
	at    int
	ix    *index
	table string
	depth int // of table
	// arrays counts the elements of each [[array]] so far.
	arrays map[string]int
}

// scan indexes the text. On an error it returns what it knows so far and the
// offset of the error.
func scan(text string) (ix *index, offset int, err error) {
	s := &scanner{text: text, ix: newIndex(text), arrays: map[string]int{}}
	for err == nil {
		s.blank()
		if s.at >= len(text) {
			return s.ix, 0, nil
		}
		err = s.expression()
	}
	return s.ix, min(s.at, len(text)), err
}

func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) has(prefix string) bool { return strings.HasPrefix(s.text[s.at:], prefix) }

// spaces skips spaces and tabs.
func (s *scanner) spaces() {
	for c := s.peek(); c == ' ' || c == '\t'; c = s.peek() {
		s.at++
	}
}

// blank skips spaces, line ends and comments.
func (s *scanner) blank() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		case '#':
			s.comment()
		default:
			return
		}
	}
}

func (s *scanner) comment() {
	if end := strings.IndexByte(s.text[s.at:], '\n'); end >= 0 {
		s.at += end
	} else {
		s.at = len(s.text)
	}
}

// expression reads a header or a key with its value, to the end of the line.
func (s *scanner) expression() error {
	var err error
	if s.peek() == '[' {
		err = s.header()
	} else {
		err = s.pair(s.table, s.depth)
	}
	if err != nil {
		return err
	}
	s.spaces()
	if c := s.peek(); s.at < len(s.text) && c != '#' && c != '\n' && c != '\r' {
		return errSyntax
	}
	return nil
}

// header reads [table] or [[array]].
func (s *scanner) header() error {
	array := s.has("[[")
	s.at++
	if array {
		s.at++
	}
	s.spaces()
	start := s.at
	keys, err := s.keys(0)
	if err != nil {
		return err
	}
	end := "]"
	if array {
		end = "]]"
	}
	if !s.has(end) {
		return errSyntax
	}
	s.at += len(end)
	return s.enter(keys, start, array)
}

// enter makes the header's table the current one. A prefix that names an
// [[array]] means its last element.
func (s *scanner) enter(keys []string, start int, array bool) error {
	path := ""
	for i, key := range keys {
		path = join(path, key)
		if len(path) > maxKeyLength {
			return errKeyLength
		}
		s.ix.put(path, place{start, start})
		if array && i == len(keys)-1 {
			s.arrays[path]++
		}
		if n := s.arrays[path]; n > 0 {
			path = element(path, n-1)
			s.ix.put(path, place{start, start})
		}
	}
	s.table, s.depth = path, len(keys)
	return nil
}

// pair reads key = value inside a table.
func (s *scanner) pair(table string, depth int) error {
	start := s.at
	keys, err := s.keys(depth)
	if err != nil {
		return err
	}
	if s.peek() != '=' {
		return errSyntax
	}
	s.at++
	s.spaces()
	path := table
	for i, key := range keys {
		path = join(path, key)
		if len(path) > maxKeyLength {
			return errKeyLength
		}
		at := place{start, start}
		if i == len(keys)-1 {
			at.value = s.at
		}
		s.ix.put(path, at)
	}
	return s.value(path, depth+len(keys))
}

// keys reads a dotted key and the spaces after it.
func (s *scanner) keys(depth int) ([]string, error) {
	var keys []string
	for {
		key, err := s.key()
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
		if depth+len(keys) > maxNesting {
			return nil, errTooDeep
		}
		s.spaces()
		if s.peek() != '.' {
			return keys, nil
		}
		s.at++
		s.spaces()
	}
}

// key reads one bare or quoted key.
func (s *scanner) key() (string, error) {
	start := s.at
	switch c := s.peek(); c {
	case '"', '\'':
		if err := s.quoted(c); err != nil {
			return "", err
		}
		return unquote(s.text[start:s.at]), nil
	}
	for s.at < len(s.text) && bareByte(s.text[s.at]) {
		s.at++
	}
	if s.at == start {
		return "", errSyntax
	}
	return s.text[start:s.at], nil
}

// value reads any value; path and depth are its own.
func (s *scanner) value(path string, depth int) error {
	if depth > maxNesting {
		return errTooDeep
	}
	switch c := s.peek(); c {
	case '[':
		return s.array(path, depth)
	case '{':
		return s.inline(path, depth)
	case '"', '\'':
		return s.str(c)
	}
	start := s.at
	for s.at < len(s.text) && strings.IndexByte(",]}#\r\n", s.text[s.at]) < 0 {
		s.at++
	}
	if s.at == start {
		return errSyntax
	}
	return nil
}

func (s *scanner) array(path string, depth int) error {
	s.at++
	for i := 0; ; i++ {
		s.blank()
		if s.peek() == ']' {
			s.at++
			return nil
		}
		inner := element(path, i)
		if i < maxElements {
			s.ix.put(inner, place{s.at, s.at})
		}
		if err := s.value(inner, depth+1); err != nil {
			return err
		}
		if err := s.separator(']'); err != nil {
			return err
		}
	}
}

func (s *scanner) inline(path string, depth int) error {
	s.at++
	for {
		s.blank()
		if s.peek() == '}' {
			s.at++
			return nil
		}
		if err := s.pair(path, depth); err != nil {
			return err
		}
		if err := s.separator('}'); err != nil {
			return err
		}
	}
}

// separator reads a comma, or stops before the end of the list.
func (s *scanner) separator(end byte) error {
	s.blank()
	switch s.peek() {
	case ',':
		s.at++
	case end:
	default:
		return errSyntax
	}
	return nil
}

// str reads a string of any of the four kinds.
func (s *scanner) str(quote byte) error {
	triple := strings.Repeat(string(quote), 3)
	if !s.has(triple) {
		return s.quoted(quote)
	}
	for s.at += 3; s.at < len(s.text); s.at++ {
		switch {
		case s.text[s.at] == '\\' && quote == '"':
			s.at++
		case s.has(triple):
			s.at += 3
			for range 2 { // up to two quotes may stand before the closing three
				if s.peek() == quote {
					s.at++
				}
			}
			return nil
		}
	}
	return errSyntax
}

// quoted reads a string on one line.
func (s *scanner) quoted(quote byte) error {
	for s.at++; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '\n':
			return errSyntax
		case c == '\\' && quote == '"':
			s.at++
		case c == quote:
			s.at++
			return nil
		}
	}
	return errSyntax
}

var escapes = map[byte]string{
	'b': "\b", 't': "\t", 'n': "\n", 'f': "\f", 'r': "\r", 'e': "\x1b", '"': `"`, '\\': `\`,
}

// unquote returns what a quoted key stands for.
func unquote(quoted string) string {
	inner := quoted[1 : len(quoted)-1]
	if quoted[0] == '\'' || !strings.Contains(inner, `\`) {
		return inner
	}
	var b strings.Builder
	for i := 0; i < len(inner); i++ {
		if inner[i] != '\\' || i+1 == len(inner) {
			b.WriteByte(inner[i])
			continue
		}
		i++
		if plain, ok := escapes[inner[i]]; ok {
			b.WriteString(plain)
			continue
		}
		i += codePoint(&b, inner[i:])
	}
	return b.String()
}

// codePoint writes the character of an escape such as u00e9 and returns how many
// digits it had.
func codePoint(b *strings.Builder, escape string) int {
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[escape[0]]
	if digits == 0 || len(escape) <= digits {
		return 0
	}
	code, err := strconv.ParseUint(escape[1:1+digits], 16, 32)
	if err != nil || code > utf8.MaxRune {
		return 0
	}
	b.WriteRune(rune(code))
	return digits
}
