package argschema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Mismatch is a value that a schema rejects.
type Mismatch struct {
	// At is the path to it: names (string) and list indexes (int).
	At                 []any
	Message, Got, Want string
}

// String returns the mismatch with its path, in the form a.b[2].
func (m Mismatch) String() string {
	text := m.Message
	if m.Got != "" {
		text += " (got " + m.Got + ")"
	}
	if m.Want != "" {
		text += "; want " + m.Want
	}
	if where := m.where(); where != "" {
		text = where + ": " + text
	}
	return text
}

func (m Mismatch) where() string {
	var b strings.Builder
	for _, step := range m.At {
		if i, ok := step.(int); ok {
			fmt.Fprintf(&b, "[%d]", i)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		fmt.Fprint(&b, step)
	}
	return b.String()
}

// mostMismatches bounds the reported mismatches: the path of each can be as long as the
// value.
const mostMismatches = 100

// mismatches returns the leaves of the library's tree of reasons, in the order of the
// value.
func mismatches(invalid *jsonschema.ValidationError, value any) []Mismatch {
	found := leaves(invalid, value)
	if len(found) > mostMismatches {
		found = found[:mostMismatches]
	}
	slices.SortStableFunc(found, func(a, b Mismatch) int { return strings.Compare(a.where(), b.where()) })
	return found
}

func leaves(reason *jsonschema.ValidationError, value any) []Mismatch {
	here := steps(reason.InstanceLocation, value)
	switch why := reason.ErrorKind.(type) {
	case *kind.AnyOf:
		return []Mismatch{{At: here, Message: "fits none of anyOf: " + alternatives(reason, value)}}
	case *kind.OneOf:
		if len(why.Subschemas) > 0 {
			return []Mismatch{{At: here, Message: fmt.Sprintf("fits oneOf[%d] and oneOf[%d]", why.Subschemas[0], why.Subschemas[1]), Want: "one alone"}}
		}
		return []Mismatch{{At: here, Message: "fits none of oneOf: " + alternatives(reason, value)}}
	}
	if len(reason.Causes) == 0 {
		return worded(reason.ErrorKind, here)
	}
	var found []Mismatch
	for _, cause := range reason.Causes {
		if found = append(found, leaves(cause, value)...); len(found) >= mostMismatches {
			break
		}
	}
	return found
}

// alternatives returns the first mismatch of each alternative.
func alternatives(reason *jsonschema.ValidationError, value any) string {
	var texts []string
	for _, cause := range reason.Causes {
		if found := leaves(cause, value); len(found) > 0 {
			found[0].At = found[0].At[min(len(reason.InstanceLocation), len(found[0].At)):]
			texts = append(texts, found[0].String())
		}
	}
	return clip(strings.Join(slices.Compact(texts), ", or "))
}

// steps converts a path of the library, which does not distinguish list indexes from
// names.
func steps(location []string, value any) []any {
	path := make([]any, 0, len(location))
	for _, name := range location {
		switch inside := value.(type) {
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(inside) {
				return path
			}
			path, value = append(path, i), inside[i]
		case map[string]any:
			path, value = append(path, name), inside[name]
		default:
			return path
		}
	}
	return path
}

var english = message.NewPrinter(language.English)

// worded words the most frequent reasons; the library words the others.
func worded(reason jsonschema.ErrorKind, here []any) []Mismatch {
	switch why := reason.(type) {
	case *kind.Type:
		return []Mismatch{{At: here, Message: "wrong type", Got: why.Got, Want: strings.Join(why.Want, " or ")}}
	case *kind.Enum:
		return []Mismatch{{At: here, Message: "not one of the values", Got: literal(why.Got), Want: oneOf(why.Want)}}
	case *kind.Const:
		return []Mismatch{{At: here, Message: "another value", Got: literal(why.Got), Want: literal(why.Want)}}
	case *kind.Required:
		return each(why.Missing, here, "missing")
	case *kind.AdditionalProperties:
		return each(why.Properties, here, "not a name that the schema has")
	case *kind.Format:
		return []Mismatch{{At: here, Message: "not a " + why.Want, Got: literal(why.Got)}}
	case *kind.FalseSchema:
		return []Mismatch{{At: here, Message: "not allowed"}}
	}
	return []Mismatch{{At: here, Message: clip(reason.LocalizedString(english))}}
}

func each(names []string, here []any, text string) []Mismatch {
	names = names[:min(len(names), mostMismatches)]
	found := make([]Mismatch, len(names))
	for i, name := range names {
		found[i] = Mismatch{At: append(slices.Clone(here), name), Message: text}
	}
	return found
}

func oneOf(values []any) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = literal(value)
	}
	return clip(strings.Join(texts, ", "))
}

// literal returns a value as JSON, on one line and cut if long.
func literal(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return clip(string(text))
}

func clip(text string) string {
	const most = 200
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}
