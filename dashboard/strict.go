package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
)

// maxBody bounds the body of a request: a job's arguments and some more.
const maxBody = 72 << 10

// bodyTimeout is how long a client may take over a body.
const bodyTimeout = 30 * time.Second

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
// and in their own case. An empty body leaves the struct alone.
func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := readBody(w, r, "application/json")
	if err != nil || len(body) == 0 {
		return err
	}
	if err := strictJSON(body, into); err != nil {
		return &refusal{http.StatusBadRequest, "The body is not as it should be: " + err.Error() + "."}
	}
	return nil
}

func strictJSON(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	fields, err := walk(d)
	if err != nil {
		if wrong := json.Unmarshal(body, &json.RawMessage{}); wrong != nil {
			err = wrong // it knows where
		}
		return plain(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	known := jsonFields(into)
	if fields == nil {
		return errors.New("an object is wanted")
	}
	for _, name := range fields {
		if !slices.Contains(known, name) {
			return fmt.Errorf("the field %q is unknown; %s", name, fieldList(known))
		}
	}
	return plain(json.Unmarshal(body, into))
}

func fieldList(fields []string) string {
	if len(fields) == 0 {
		return "there are none"
	}
	return "the fields are " + strings.Join(fields, ", ")
}

// plain words the errors of encoding/json.
func plain(err error) error {
	var (
		kind    *json.UnmarshalTypeError
		syntax  *json.SyntaxError
		instant *time.ParseError
	)
	switch {
	case errors.As(err, &kind):
		return fmt.Errorf("the field %q is not a %s", kind.Field, kind.Type)
	case errors.As(err, &instant):
		return fmt.Errorf("%s is not a time such as 2026-11-20T15:04:05Z", instant.Value)
	case errors.As(err, &syntax):
		return fmt.Errorf("it is no JSON from byte %d on (%w)", syntax.Offset, err)
	default:
		return err
	}
}

// walk reads one value and returns the names of its fields; nil where it is not
// an object. A name that stands twice in an object, however deep, is an error.
func walk(d *json.Decoder) (fields []string, err error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return walkObject(d)
	case json.Delim('['):
		for d.More() {
			if _, err := walk(d); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
	}
	return nil, err
}

func walkObject(d *json.Decoder) ([]string, error) {
	fields, seen := []string{}, map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // the decoder allows nothing else
		if seen[name] {
			return nil, fmt.Errorf("the field %q stands twice", name)
		}
		seen[name] = true
		fields = append(fields, name)
		if _, err := walk(d); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return fields, err
}

func jsonFields(of any) []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(of).Elem()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
