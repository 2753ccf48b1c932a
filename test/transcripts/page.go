package transcripts

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// block is a fenced block of a page.
type block struct {
	place string // FILE:LINE
	words []string
	lines []string
}

// command is a command with the output that the page shows.
type command struct {
	place string
	text  string
	want  []string
}

// readPage returns the fenced blocks of a Markdown file.
func readPage(path string) ([]block, error) {
	text, err := os.ReadFile(path) //nolint:gosec // a page of the documentation
	if err != nil {
		return nil, err
	}
	var blocks []block
	open := false
	for i, line := range strings.Split(string(text), "\n") {
		info, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && open:
			open = false
		case isFence:
			open = true
			blocks = append(blocks, block{place: fmt.Sprintf("%s:%d", path, i+1), words: strings.Fields(info)})
		case open:
			last := &blocks[len(blocks)-1]
			last.lines = append(last.lines, line)
		}
	}
	if open {
		return nil, fmt.Errorf("%s: a block does not end", blocks[len(blocks)-1].place)
	}
	return blocks, nil
}

// is reports whether the block's info string has a word at a position.
func (b block) is(position int, word string) bool {
	return len(b.words) > position && b.words[position] == word
}

// file returns the name of the file that the block is, or "".
func (b block) file() string {
	if len(b.words) != 2 || b.is(0, "console") {
		return ""
	}
	return b.words[1]
}

// commands returns the commands of a console block.
func (b block) commands() ([]command, error) {
	var found []command
	for _, line := range b.lines {
		if text, ok := strings.CutPrefix(line, "$ "); ok {
			found = append(found, command{place: b.place, text: text})
			continue
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s: output before the first command", b.place)
		}
		last := &found[len(found)-1]
		last.want = append(last.want, line)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no command", b.place)
	}
	if len(b.words) > 1 && !slices.Contains([]string{"eventually", "background"}, b.words[1]) {
		return nil, fmt.Errorf("%s: unknown word %q", b.place, b.words[1])
	}
	if b.is(1, "background") && len(found) != 1 {
		return nil, fmt.Errorf("%s: want one command", b.place)
	}
	return found, nil
}
