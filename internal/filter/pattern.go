package filter

import (
	"strings"
	"unicode"
)

// Pattern is a text with gaps that any characters fill: the parts of the text between them.
type Pattern []string

// Exact returns the text of a pattern without gaps.
func (p Pattern) Exact() (text string, ok bool) {
	if len(p) != 1 {
		return "", false
	}
	return p[0], true
}

// Like returns the pattern for LIKE with the default escape character.
func (p Pattern) Like() string {
	parts := make([]string, len(p))
	for i, part := range p {
		parts[i] = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(part)
	}
	return strings.Join(parts, "%")
}

// Matches reports whether a text matches the pattern as a whole.
func (p Pattern) Matches(text string) bool {
	if only, ok := p.Exact(); ok {
		return text == only
	}
	first, last := p[0], p[len(p)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range p[1 : len(p)-1] {
		_, after, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = after
	}
	return true
}

// Written returns the term of a text in which * stands for any characters.
func Written(key, text string) Term {
	parts := strings.Split(text, "*")
	values := make([]string, len(parts))
	for i, part := range parts {
		if part != "" {
			values[i] = quoted(part)
		}
	}
	return Term{Key: key, Text: parts, value: strings.Join(values, "*")}
}

// quoted returns a text as it is written in a filter, in quotes if it needs them.
func quoted(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`"*\`, r) }) {
		return text
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}
