package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/redact"
)

// args takes a table of any values that JSON can carry.
func (l *loader) args(path string, target *map[string]any, value any) {
	table, ok := value.(map[string]any)
	if !ok {
		l.wrong(path, "wrong type", l.describe(field{}, value), "a table such as { days = 7 }")
		return
	}
	if l.plain(path, table) {
		*target = table
	}
}

// plain reports the names and values in a tree that JSON or PostgreSQL cannot hold. It replaces
// dates and times by their text.
func (l *loader) plain(path string, value any) bool {
	fine := true
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if strings.ContainsRune(name, 0) {
				l.wrongKey(join(path, name), "a NUL character in a name, which PostgreSQL's jsonb refuses", "a name without it")
				fine = false
			}
			v[name] = dateText(v[name])
			fine = l.plain(join(path, name), v[name]) && fine
			if text, ok := v[name].(string); ok && text != "" && redact.Name(name) {
				l.warn(join(path, name), "a secret in the args, which are stored and shown", `env or headers of the job, with "${env:NAME}"`)
			}
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			l.wrong(path, "not a number that JSON has", strconv.FormatFloat(v, 'g', -1, 64), "a finite number")
			return false
		}
	case string:
		if strings.ContainsRune(v, 0) {
			l.wrong(path, "a NUL character, which PostgreSQL's jsonb refuses", "", "text without it")
			return false
		}
		if _, _, found := cutReference(v); found {
			l.warn(path, "references are not resolved in args, which are stored and shown", "env or headers of the job")
		}
	default:
		if items, ok := asList(value); ok {
			for i := range items {
				items[i] = dateText(items[i])
				fine = l.plain(element(path, i), items[i]) && fine
			}
		}
	}
	return fine
}

// dateText returns the text of a TOML date or time, and any other value as it is. One without an
// offset must not get that of the host: it differs between nodes, and changes with daylight saving.
func dateText(value any) any {
	at, ok := value.(time.Time)
	if !ok {
		return value
	}
	switch at.Location().String() { // as the decoder calls what has no offset
	case "date-local":
		return at.Format(time.DateOnly)
	case "time-local":
		return at.Format("15:04:05.999999999")
	case "datetime-local":
		return at.Format("2006-01-02T15:04:05.999999999")
	default:
		return at.Format(time.RFC3339Nano)
	}
}

// describe shows a value as it was found, unless it may be a secret.
func (l *loader) describe(f field, value any) string {
	switch v := value.(type) {
	case map[string]any:
		return "a table"
	case []any, []map[string]any:
		return "a list"
	case string:
		if f.typ != nil && f.refs() {
			return "a string"
		}
		return strconv.Quote(clip(v))
	case int64, float64:
		if f.typ != nil && f.refs() {
			return "a number"
		}
		return number(v)
	case time.Time:
		return "a date"
	default:
		return fmt.Sprint(v)
	}
}

// number is a number as text.
func number(value any) string {
	if v, ok := value.(float64); ok {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprint(value)
}

// Quote returns a text in quotes, shortened, for a Problem.
func Quote(text string) string { return strconv.Quote(clip(text)) }

// clip shortens a text for a message.
func clip(text string) string {
	const most = 80
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}

func quotedAll(words []string) []string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = strconv.Quote(word)
	}
	return quoted
}

// quotedList words a choice: "a", "b" or "c".
func quotedList(words []string) string {
	quoted := quotedAll(words)
	last := len(quoted) - 1
	if last < 1 {
		return strings.Join(quoted, "")
	}
	return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}
