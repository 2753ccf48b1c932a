package config

import (
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

var configType = reflect.TypeFor[Config]()

// source is an included file. It keeps the text and where each cron begins in it, and no
// index: a million crons have millions of keys, and few of them have a problem.
type source struct {
	name, text string
	// first is the index in Config.Crons of its first cron, crons how many it has.
	first, crons int
	// list holds its crons until they are in Config.Crons.
	list []Cron
	// keys are the keys of each cron, a bit for each.
	keys []uint64
	// begins are the offsets of [[crons]]; nil if the file writes them in another way.
	begins []int
	// whole is the index of the text, once it was needed.
	whole *index
	// The index of the cron that was looked at last.
	segment *index
	at      int
}

// newSource returns the source of a loaded file with the given tree.
func newSource(part *loader, tree map[string]any, first int) *source {
	list := part.cfg.Crons
	s := &source{name: part.name, text: part.ix.text, first: first, crons: len(list), list: list, at: -1}
	s.keys = keysOf(tree["crons"], len(list))
	for i := range s.crons {
		place, ok := part.ix.places[element("crons", i)]
		begin := -1
		if ok {
			begin = strings.LastIndex(s.text[:place.key], "[[")
		}
		if begin < 0 || strings.TrimSpace(s.text[begin+2:place.key]) != "" || i > 0 && begin <= s.begins[i-1] {
			s.begins = nil
			break
		}
		s.begins = append(s.begins, begin)
	}
	return s
}

// cronKeys are the positions of a cron's keys in source.keys.
var cronKeys = sync.OnceValue(func() map[string]int {
	positions := map[string]int{}
	for i, name := range fieldNames(reflect.TypeFor[Cron]()) {
		positions[name] = i
	}
	return positions
})

// keysOf returns the keys of each cron of a file.
func keysOf(list any, crons int) []uint64 {
	items, _ := asList(list)
	keys := make([]uint64, crons)
	for i, item := range items[:min(crons, len(items))] {
		table, _ := item.(map[string]any)
		for name := range table {
			if n, ok := cronKeys()[name]; ok {
				keys[i] |= 1 << n
			}
		}
	}
	return keys
}

// has says whether a path stands in the text.
func (s *source) has(path string) bool {
	if i, rest, ok := cutCron(path); ok && i < len(s.keys) {
		if n, ok := cronKeys()[strings.TrimPrefix(rest, ".")]; ok {
			return s.keys[i]&(1<<n) != 0
		}
	}
	_, exact := s.find(path)
	return exact
}

// global returns the path in the whole configuration.
func (s *source) global(path string) string {
	i, rest, ok := cutCron(path)
	if !ok {
		return path
	}
	return element("crons", s.first+i) + rest
}

// cutCron cuts the index of a cron off the rest of its path.
func cutCron(path string) (i int, rest string, ok bool) {
	after, ok := strings.CutPrefix(path, "crons[")
	if !ok {
		return 0, "", false
	}
	digits, rest, ok := strings.Cut(after, "]")
	if !ok {
		return 0, "", false
	}
	i, err := strconv.Atoi(digits)
	return i, rest, err == nil
}

// find returns the place of a path in the text; exact says whether it stands there
// itself, and not only something around it.
func (s *source) find(path string) (at place, exact bool) {
	var (
		ix     *index
		offset int
	)
	if i, rest, ok := cutCron(path); ok && i < len(s.begins) {
		ix, offset = s.cron(i), s.begins[i]
		path = element("crons", 0) + rest
	} else {
		ix = s.index()
	}
	_, exact = ix.places[path]
	at, _ = ix.find(path)
	return place{at.key + offset, at.value + offset}, exact
}

// index returns the index of the whole text.
func (s *source) index() *index {
	if s.whole == nil {
		s.whole, _, _ = scan(s.text) // it was scanned without an error before
	}
	return s.whole
}

// cron returns the index of the text from one cron to the next.
func (s *source) cron(i int) *index {
	if s.at != i {
		end := len(s.text)
		if i+1 < len(s.begins) {
			end = s.begins[i+1]
		}
		s.segment, _, _ = scan(s.text[s.begins[i]:end])
		s.at = i
	}
	return s.segment
}

// position is index.position, without a list of lines.
func (s *source) position(offset int) (line, col int) {
	before := s.text[:max(0, min(offset, len(s.text)))]
	start := strings.LastIndexByte(before, '\n') + 1
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[start:]) + 1
}

// file returns the included file that holds a path and the path in it; nil is forge.toml
// itself.
func (l *loader) file(path string) (*source, string) {
	if len(l.included) == 0 {
		return nil, path
	}
	if i, rest, ok := cutCron(path); ok {
		n := sort.Search(len(l.included), func(n int) bool { return l.included[n].first > i }) - 1
		if n < 0 {
			return nil, path
		}
		return l.included[n], element("crons", i-l.included[n].first) + rest
	}
	for up := path; up != ""; up = parent(up) {
		if found, ok := l.jobFiles[up]; ok {
			return found, path
		}
	}
	return nil, path
}

// spot is where a path stands.
type spot struct {
	file, key string
	text      string
	place     place
	position  func(offset int) (line, col int)
}

// spot returns where a path stands, or the nearest table around it; ok is false if
// neither stands anywhere.
func (l *loader) spot(path string) (found spot, ok bool) {
	if file, local := l.file(path); file != nil {
		at, _ := file.find(local)
		return spot{file: file.name, key: local, text: file.text, place: at, position: file.position}, true
	}
	at, ok := l.ix.find(path)
	return spot{file: l.name, key: path, text: l.ix.text, place: at, position: l.ix.position}, ok
}

// stands says whether a path itself stands in a file, also one below a value of any shape.
func (l *loader) stands(path string) bool {
	path = l.written(path)
	if file, local := l.file(path); file != nil {
		return file.has(local)
	}
	_, given := l.given[path]
	_, placed := l.ix.places[path]
	return given || placed
}

// where names the line of a path's value, and the file unless it is forge.toml.
func (l *loader) where(path string) string {
	found, ok := l.spot(path)
	line := 0
	if ok {
		line, _ = found.position(found.place.value)
	}
	if len(l.included) == 0 {
		return fmt.Sprintf("line %d", line)
	}
	return fmt.Sprintf("%s:%d", found.file, line)
}
