package config

import (
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// place is where a key stands in the text, in bytes from its start: of the key
// itself and of its value. A table's value is its key.
type place struct{ key, value int }

// index knows the place of every key of a file. The decoder has no positions of
// its own for what it has decoded.
type index struct {
	places map[string]place
	lines  []int // the offset at which each line starts
	text   string
}

func newIndex(text string) *index {
	lines := strings.Count(text, "\n") + 1
	ix := &index{places: make(map[string]place, lines), lines: make([]int, 1, lines), text: text}
	for i := range len(text) {
		if text[i] == '\n' {
			ix.lines = append(ix.lines, i+1)
		}
	}
	return ix
}

// put records the first place of a path: a table that is extended later keeps
// the place where it began.
func (ix *index) put(path string, at place) {
	if _, ok := ix.places[path]; !ok {
		ix.places[path] = at
	}
}

// position turns an offset into a line and a column, both from 1. The column
// counts characters, as editors do.
func (ix *index) position(offset int) (line, col int) {
	offset = max(0, min(offset, len(ix.text)))
	line = sort.SearchInts(ix.lines, offset+1)
	start := ix.lines[line-1]
	return line, utf8.RuneCountInString(ix.text[start:offset]) + 1
}

// key returns the position of a key, or of the nearest table around it.
func (ix *index) key(path string) (line, col int) {
	at, ok := ix.find(path)
	if !ok {
		return 0, 0
	}
	return ix.position(at.key)
}

// value returns the position of a key's value, or of the nearest table around
// it.
func (ix *index) value(path string) (line, col int) {
	at, ok := ix.find(path)
	if !ok {
		return 0, 0
	}
	return ix.position(at.value)
}

func (ix *index) find(path string) (place, bool) {
	for path != "" {
		if at, ok := ix.places[path]; ok {
			return at, true
		}
		path = parent(path)
	}
	return place{}, false
}

// join appends a key to a path. Keys that are not bare are quoted, so that a
// path names one place only: crons[0].name, jobs."a b".url.
func join(path, key string) string {
	if !bare(key) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// element appends an index to a path.
func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// parent cuts the last key or index off a path.
func parent(path string) string {
	if path == "" {
		return ""
	}
	end := len(path) - 1
	switch path[end] {
	case ']':
		return path[:strings.LastIndexByte(path, '[')]
	case '"':
		end--
		for end > 0 && (path[end] != '"' || escaped(path, end)) {
			end--
		}
	}
	return path[:max(0, strings.LastIndexByte(path[:end+1], '.'))]
}

// escaped says whether the byte at i follows an odd number of backslashes.
func escaped(text string, i int) bool {
	count := 0
	for i--; i >= 0 && text[i] == '\\'; i-- {
		count++
	}
	return count%2 == 1
}

func bare(key string) bool {
	for i := range len(key) {
		if !bareByte(key[i]) {
			return false
		}
	}
	return key != ""
}

func bareByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}
