package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxBody bounds the body of a request: a job's arguments and some more.
const maxBody = 72 << 10

// bodyTimeout is how long a client may take over a body.
const bodyTimeout = 30 * time.Second

// isText is true of what the database takes for a text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

var errNoText = errors.New("may not have the character NUL")

// textValues reads the names and values of an address or a form.
func textValues(raw string) (url.Values, error) {
	values, err := url.ParseQuery(raw)
	for name, texts := range values {
		if !isText(name) || !isText(strings.Join(texts, "")) {
			err = errNoText
		}
	}
	return values, err
}

// addressed refuses an address that is no text: nothing in the database is like it, and
// the database would call it an error.
func (s *server) addressed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isText(r.URL.Path) {
			s.notFound(w, r)
			return
		}
		if _, err := textValues(r.URL.RawQuery); err != nil {
			s.fail(w, r, http.StatusBadRequest, "The address cannot be read: after its ? stand names and values, of characters in UTF-8 other than NUL.")
			return
		}
		next(w, r)
	}
}

// readBody checks that a body is of a type and not too large, and reads it. A
// body that is missing is empty.
func readBody(w http.ResponseWriter, r *http.Request, contentType string) ([]byte, error) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // not every writer has one
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("The body is larger than %d bytes.", maxBody)}
	}
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, "The body cannot be read."}
	}
	given, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if len(body) > 0 && (err != nil || given != contentType) {
		return nil, &refusal{http.StatusUnsupportedMediaType, "Content-Type must be " + contentType + "."}
	}
	return body, nil
}

// readJSON reads a body into a struct: an object with known fields, each once,
// and in their own case. An empty body leaves the struct alone. What is no JSON
// is a refusal, what is wrong with the fields an invalidError.
func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := readBody(w, r, "application/json")
	if err != nil || len(body) == 0 {
		return err
	}
	return strictJSON(body, into)
}

func strictJSON(body []byte, into any) error {
	members, wrong, err := membersOf(body)
	if err != nil {
		return &refusal{http.StatusBadRequest, "The body is not as it should be: " + err.Error() + "."}
	}
	known := jsonFields(into)
	for _, m := range members {
		field, ok := known[m.name]
		if !ok {
			wrong = append(wrong, unknownField(m.name, known))
			continue
		}
		if err := json.Unmarshal(m.raw, field.value.Addr().Interface()); err != nil {
			wrong = append(wrong, wrongField(m.name, fmt.Sprintf("must be %s (got %s)", valuesOf(field.value.Type()), gotten(m.raw))))
		} else if field.value.Kind() == reflect.String && !isText(field.value.String()) {
			wrong = append(wrong, wrongField(m.name, errNoText.Error()))
		}
	}
	return wrongFields(wrong...)
}

// unknownField says what the fields are.
func unknownField(name string, known map[string]field) fieldError {
	detail := "there are none"
	if len(known) > 0 {
		names := slices.SortedFunc(maps.Keys(known), func(a, b string) int { return cmp.Compare(known[a].at, known[b].at) })
		detail = "the fields are " + strings.Join(names, ", ")
	}
	return fieldError{"#" + pointerTo(name), "is unknown; " + detail, fmt.Sprintf("the field %q is unknown; %s", name, detail)}
}

// valuesOf describes the values that a field takes.
func valuesOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "a time such as 2026-11-20T15:04:05Z"
	case t.Kind() == reflect.String:
		return "a text"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "a list, each of it " + valuesOf(t.Elem())
	default:
		return "a whole number"
	}
}

// member is a field of an object as it was written.
type member struct {
	name string
	raw  json.RawMessage
}

// membersOf takes an object apart. Names that stand twice in an object, however
// deep, are wrong.
func membersOf(body []byte) (members []member, twice []fieldError, err error) {
	if !utf8.Valid(body) {
		return nil, nil, errors.New("it is not UTF-8")
	}
	if err := json.Unmarshal(body, &json.RawMessage{}); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, nil, fmt.Errorf("it is no JSON from byte %d on (%w)", syntax.Offset, err)
		}
		return nil, nil, err
	}
	w := walker{decoder: json.NewDecoder(bytes.NewReader(body)), body: body}
	members, err = w.value("")
	if err == nil && members == nil {
		err = errors.New("an object is wanted")
	}
	return members, w.twice, err
}

// walker goes through JSON that is sound.
type walker struct {
	decoder *json.Decoder
	body    []byte
	twice   []fieldError
}

// value reads one value and returns the fields of an object; nil where it is none.
func (w *walker) value(at string) ([]member, error) {
	token, err := w.decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return w.object(at)
	case json.Delim('['):
		for i := 0; w.decoder.More(); i++ {
			if _, err := w.value(at + "/" + strconv.Itoa(i)); err != nil {
				return nil, err
			}
		}
		_, err = w.decoder.Token()
	}
	return nil, err
}

func (w *walker) object(at string) ([]member, error) {
	members, seen := []member{}, map[string]bool{}
	for w.decoder.More() {
		token, err := w.decoder.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // the decoder allows nothing else
		from := w.decoder.InputOffset()
		if _, err := w.value(at + pointerTo(name)); err != nil {
			return nil, err
		}
		if seen[name] {
			w.twice = append(w.twice, fieldError{"#" + at + pointerTo(name), "stands twice", fmt.Sprintf("the field %q stands twice", name)})
			continue
		}
		seen[name] = true
		raw := bytes.TrimLeft(w.body[from:w.decoder.InputOffset()], ": \t\r\n")
		members = append(members, member{name, raw})
	}
	_, err := w.decoder.Token()
	return members, err
}

// field is one of a struct, with its place in it.
type field struct {
	value reflect.Value
	at    int
}

func jsonFields(of any) map[string]field {
	whole := reflect.ValueOf(of).Elem()
	fields := map[string]field{}
	for i, f := range reflect.VisibleFields(whole.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = field{whole.FieldByIndex(f.Index), i}
	}
	return fields
}
