package web

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

	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// Form parses the fields of a form. If it returns false, it has answered the request.
func (s *Responder) Form(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	body, err := ReadBody(w, r, "application/x-www-form-urlencoded")
	if err != nil {
		s.AnswerError(w, r, err)
		return nil, false
	}
	fields, err := TextValues(string(body))
	if err != nil {
		s.Fail(w, r, http.StatusBadRequest, "The form cannot be read.")
	}
	return fields, err == nil
}

// MaxBody bounds the body of a request: the arguments of a job and some more.
const MaxBody = 72 << 10

// IsText reports whether the database accepts s as text.
func IsText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// IsTime reports whether answers can show an instant.
func IsTime(at time.Time) bool { return jobstore.CheckYear(at) == nil }

var errNoText = errors.New("may not have the character NUL")

// TextValues parses the names and values of an address or a form.
func TextValues(raw string) (url.Values, error) {
	values, err := url.ParseQuery(raw)
	for name, texts := range values {
		if !IsText(name) || !IsText(strings.Join(texts, "")) {
			err = errNoText
		}
	}
	return values, err
}

// ReadBody checks the type and size of a body and reads it. A missing body is empty.
func ReadBody(w http.ResponseWriter, r *http.Request, contentType string) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, Refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("The body is larger than %d bytes.", MaxBody))
	}
	if err != nil {
		return nil, Refuse(http.StatusBadRequest, "The body cannot be read.")
	}
	given, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if len(body) > 0 && (err != nil || given != contentType) {
		return nil, Refuse(http.StatusUnsupportedMediaType, "Content-Type must be "+contentType+".")
	}
	return body, nil
}

// ReadJSON parses a body into a struct. The body must be an object with known fields in
// their exact case, each at most once. An empty body leaves the struct unchanged. The error
// is a refusal for invalid JSON, and an InvalidError for wrong fields.
func ReadJSON(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := ReadBody(w, r, JSONMedia)
	if err != nil || len(body) == 0 {
		return err
	}
	return StrictJSON(body, into)
}

// StrictJSON parses a body like ReadJSON.
func StrictJSON(body []byte, into any) error {
	members, wrong, err := membersOf(body)
	if err != nil {
		return Refuse(http.StatusBadRequest, "The body is invalid: "+err.Error()+".")
	}
	known := jsonFields(into)
	for _, m := range members {
		if len(wrong) > mostWrong {
			break
		}
		field, ok := known[m.name]
		if !ok {
			wrong = append(wrong, unknownField(m.name, known))
			continue
		}
		err := json.Unmarshal(m.raw, field.value.Addr().Interface())
		if at, ok := reflect.TypeAssert[time.Time](field.value); err != nil || ok && !IsTime(at) {
			wrong = append(wrong, WrongField(m.name, fmt.Sprintf("must be %s (got %s)", valuesOf(field.value.Type()), shownValue(m.raw))))
		} else if field.value.Kind() == reflect.String && !IsText(field.value.String()) {
			wrong = append(wrong, WrongField(m.name, errNoText.Error()))
		}
	}
	return WrongFields(wrong...)
}

// mostWrong bounds the errors in an answer.
const mostWrong = 50

// clipName shortens a name for an error message, because a name can be as long as the body.
func clipName(name string) string {
	const most = 80
	if runes := []rune(name); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return name
}

// unknownField returns an error that lists the known fields.
func unknownField(name string, known map[string]field) FieldError {
	detail := "there are none"
	if len(known) > 0 {
		names := slices.SortedFunc(maps.Keys(known), func(a, b string) int { return cmp.Compare(known[a].at, known[b].at) })
		detail = "the fields are " + strings.Join(names, ", ")
	}
	name = clipName(name)
	return FieldError{"#" + PointerTo(name), "is unknown; " + detail, fmt.Sprintf("the field %q is unknown; %s", name, detail)}
}

// valuesOf describes the values that a field accepts.
func valuesOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "a time such as 2026-11-20T15:04:05Z"
	case t == reflect.TypeFor[config.UniqueArgs]():
		return "true, or a list of names"
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

// membersOf splits an object into its fields. It reports repeated names in objects at any
// depth.
func membersOf(body []byte) (members []member, twice []FieldError, err error) {
	if !utf8.Valid(body) {
		return nil, nil, errors.New("it is not UTF-8")
	}
	if err := argschema.CheckDepth(body); err != nil {
		return nil, nil, fmt.Errorf("it is %w", err)
	}
	if err := json.Unmarshal(body, &json.RawMessage{}); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, nil, fmt.Errorf("it is not valid JSON at byte %d (%w)", syntax.Offset, err)
		}
		return nil, nil, err
	}
	w := walker{decoder: json.NewDecoder(bytes.NewReader(body)), body: body}
	err = w.value()
	if err == nil && w.members == nil {
		err = errors.New("an object is required")
	}
	return w.members, w.twice, err
}

// walker reads valid JSON.
type walker struct {
	decoder *json.Decoder
	body    []byte
	// steps lead to the value that is being read, as parts of a JSON pointer. They are
	// joined only for an error, because a pointer can be as long as the body.
	steps []string
	// members are the fields of the top-level object; nil if the body is not an object.
	members []member
	twice   []FieldError
}

// value reads one value.
func (w *walker) value() error {
	token, err := w.decoder.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		return w.object()
	case json.Delim('['):
		return w.list()
	}
	return nil
}

func (w *walker) list() error {
	at := len(w.steps)
	for i := 0; w.decoder.More(); i++ {
		w.steps = append(w.steps[:at], strconv.Itoa(i))
		if err := w.value(); err != nil {
			return err
		}
	}
	w.steps = w.steps[:at]
	_, err := w.decoder.Token()
	return err
}

func (w *walker) object() error {
	at, seen := len(w.steps), map[string]bool{}
	if at == 0 {
		w.members = []member{}
	}
	for w.decoder.More() {
		token, err := w.decoder.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string) // the decoder guarantees a string here
		from := w.decoder.InputOffset()
		w.steps = append(w.steps[:at], name)
		if err := w.value(); err != nil {
			return err
		}
		w.steps = w.steps[:at+1]
		switch {
		case seen[name]:
			w.repeated(name)
		case at == 0:
			raw := bytes.TrimLeft(w.body[from:w.decoder.InputOffset()], ": \t\r\n")
			w.members = append(w.members, member{name, raw})
		}
		seen[name] = true
	}
	w.steps = w.steps[:at]
	_, err := w.decoder.Token()
	return err
}

// repeated records a repeated name, up to a limit.
func (w *walker) repeated(name string) {
	if len(w.twice) > mostWrong {
		return
	}
	var pointer strings.Builder
	pointer.WriteString("#")
	for _, step := range w.steps {
		pointer.WriteString(PointerTo(clipName(step)))
	}
	w.twice = append(w.twice, FieldError{pointer.String(), "stands twice", fmt.Sprintf("the field %q stands twice", clipName(name))})
}

// field is a field of a struct and its position.
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
