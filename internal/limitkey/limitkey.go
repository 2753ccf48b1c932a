// Package limitkey reads the keys of limits. A key names the part of a job whose value
// decides which jobs share a limit, such as args.tenant.
package limitkey

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Sources of a key.
const (
	Args     = "args"
	Metadata = "metadata"
	Tags     = "tags"
	Cron     = "cron"
	// Constant is the source of a key with the same value for all jobs.
	Constant = "constant"
)

const (
	// maxLength bounds the text of a key, and maxNames the names in its path.
	maxLength = 200
	maxNames  = 16

	// cronMetadata is where the metadata of a job has the name of its cron.
	cronMetadata = Metadata + ".forge:cron"

	// Want says what a key looks like.
	Want = `"args.NAME", "metadata.NAME", "tags.NAME", "cron" or a text in single quotes`
)

// Key is a key as it is written, by its parts.
type Key struct {
	Source string
	// Path leads to the value: the names of members of args or metadata, the name before the
	// separator of a tag, or the text of a constant. A key of the cron has none.
	Path []string
}

// Error is what is wrong with the text of a key.
type Error struct {
	Problem string
	// Want is what was expected in its place.
	Want string
}

func (e *Error) Error() string { return fmt.Sprintf("%s; want %s", e.Problem, e.Want) }

// Parse reads a key. The error is an *Error.
func Parse(text string) (Key, error) {
	switch {
	case text == "":
		return Key{}, &Error{"no key", Want}
	case len(text) > maxLength:
		return Key{}, &Error{"a key that is too long", fmt.Sprintf("at most %d bytes", maxLength)}
	case strings.ContainsFunc(text, unicode.IsControl):
		return Key{}, &Error{"a control character in a key", "text without it"}
	case text == Cron, text == cronMetadata:
		return Key{Source: Cron}, nil
	case strings.HasPrefix(text, "'"):
		return constant(text)
	}
	source, rest, _ := strings.Cut(text, ".")
	path := strings.Split(rest, ".")
	switch source {
	case Args, Metadata:
		if slices.Contains(path, "") {
			return Key{}, &Error{"a name is missing in the key", source + ".NAME, or " + source + ".NAME.NAME for a member of an object"}
		}
		if len(path) > maxNames {
			return Key{}, &Error{"too many names in the key", fmt.Sprintf("at most %d", maxNames)}
		}
		return Key{source, path}, nil
	case Tags:
		if rest == "" || len(path) > 1 {
			return Key{}, &Error{"not the name of a tag", `tags.NAME, for tags such as "NAME-value"`}
		}
		return Key{source, path}, nil
	}
	return Key{}, &Error{"an unknown source of a key", Want}
}

func constant(text string) (Key, error) {
	inner, closed := strings.CutSuffix(text[1:], "'")
	if !closed || inner == "" || strings.Contains(inner, "'") {
		return Key{}, &Error{"not a constant", `a text in single quotes, such as "'all'"`}
	}
	return Key{Constant, []string{inner}}, nil
}

// String returns the key as it is written.
func (k Key) String() string {
	switch k.Source {
	case Cron:
		return Cron
	case Constant:
		return "'" + strings.Join(k.Path, "") + "'"
	}
	return k.Source + "." + strings.Join(k.Path, ".")
}
