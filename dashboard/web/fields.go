package web

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/internal/config"
)

// FieldError describes the error in one field of a body.
type FieldError struct {
	// Pointer is a JSON pointer (RFC 6901) to the field, as a fragment: #/args/table.
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
	// Whole is the message as a complete phrase.
	Whole string `json:"-"`
}

// InvalidError is returned for a body that is valid JSON but not a valid request. It names
// every wrong field.
type InvalidError []FieldError

// mostShown bounds the fields that the detail names. The list of errors names all of them.
const mostShown = 10

func (e InvalidError) Error() string {
	phrases := make([]string, 0, mostShown+1)
	for i, wrong := range e {
		if i == mostShown {
			phrases = append(phrases, "and "+strconv.Itoa(len(e)-i)+" more")
			break
		}
		phrases = append(phrases, wrong.Whole)
	}
	return strings.Join(phrases, "; ")
}

// WrongField returns an error of a field. The detail continues the field's name.
func WrongField(name, detail string) FieldError {
	return FieldError{"#" + PointerTo(name), detail, name + " " + detail}
}

// WrongBody returns an error of the whole body.
func WrongBody(detail string) FieldError {
	return FieldError{"#", detail, strings.ToUpper(detail[:1]) + detail[1:]}
}

// WrongFields returns the errors as one error, or nil if there are none.
func WrongFields(wrong ...FieldError) error {
	if len(wrong) == 0 {
		return nil
	}
	return InvalidError(wrong)
}

// WrongArgs returns the errors in a job's arguments. It returns any other error as other.
func WrongArgs(err error) (wrong []FieldError, other error) {
	var all config.SchemaError
	if one, ok := errors.AsType[*config.ArgsError](err); ok {
		all = config.SchemaError{one}
	} else if !errors.As(err, &all) {
		return nil, err
	}
	for _, one := range all {
		detail := strings.TrimPrefix(strings.TrimPrefix(one.Error(), one.Path), ": ")
		wrong = append(wrong, FieldError{"#" + pointerOf(one.Path), detail, one.Error()})
	}
	return wrong, nil
}

// PointerTo escapes one step of a JSON pointer.
func PointerTo(name string) string {
	return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// pointerOf converts a path such as args.a[0]."b c" to a JSON pointer.
func pointerOf(path string) string {
	var pointer strings.Builder
	for path != "" {
		step := path
		switch quoted, err := strconv.QuotedPrefix(path); {
		case err == nil:
			step, _ = strconv.Unquote(quoted)
			path = path[len(quoted):]
		case path[0] == '[':
			step, path, _ = strings.Cut(path[1:], "]")
		default:
			if end := strings.IndexAny(path, ".["); end >= 0 {
				step = path[:end]
			}
			path = path[len(step):]
		}
		pointer.WriteString(PointerTo(step))
		path = strings.TrimPrefix(path, ".")
	}
	return pointer.String()
}

// shownValue returns a rejected value for an error message, shortened.
func shownValue(raw json.RawMessage) string {
	const most = 60
	if len(raw) > most {
		return "something of " + strconv.Itoa(len(raw)) + " bytes"
	}
	return string(raw)
}
