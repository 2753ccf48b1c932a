// Package argschema checks the arguments of jobs against JSON schemas, and bounds how
// deeply JSON from outside may nest before it is decoded.
package argschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// MaxSize is the largest size of a schema, in bytes.
const MaxSize = 256 << 10

// Schema is a JSON schema, of draft 2020-12 unless it names another. Formats such as
// date-time are checked.
type Schema struct {
	compiled *jsonschema.Schema
	root     map[string]any
}

// sealed rejects references to documents outside of the schema.
type sealed struct{}

// Load is part of jsonschema.URLLoader.
func (sealed) Load(string) (any, error) {
	return nil, errors.New("a schema may only refer to itself, as with #/$defs/NAME")
}

// address is the schema's URL, which the library requires.
const address = "forge:schema"

// Compile compiles a schema. The error names the problem and its place.
func Compile(text []byte) (*Schema, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("%d bytes; want at most %d KiB", len(text), MaxSize>>10)
	}
	if err := CheckDepth(text); err != nil {
		return nil, err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	root, ok := document.(map[string]any)
	if !ok {
		return nil, errors.New(`not an object; want a schema such as {"type": "object", "required": ["name"]}`)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	compiler.UseLoader(sealed{})
	if err := compiler.AddResource(address, document); err != nil {
		return nil, errors.New(plain(err.Error()))
	}
	compiled, err := compiler.Compile(address)
	if err != nil {
		return nil, wrongSchema(err, document)
	}
	if compiled.Types != nil && !slices.Contains(compiled.Types.ToStrings(), "object") {
		return nil, fmt.Errorf("type: arguments are always an object (got %s); want object", strings.Join(compiled.Types.ToStrings(), " or "))
	}
	return &Schema{compiled: compiled, root: root}, nil
}

// wrongSchema returns the error with the place in the schema.
func wrongSchema(err error, document any) error {
	if wrong, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if invalid, ok := errors.AsType[*jsonschema.ValidationError](wrong.Err); ok {
			return errors.New(mismatches(invalid, document)[0].String())
		}
	}
	if unread, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return fmt.Errorf("%s: %w", unread.URL, unread.Err)
	}
	return errors.New(plain(err.Error()))
}

// plain removes the schema's internal URL from a text.
func plain(text string) string { return strings.ReplaceAll(text, address, "") }

// Check returns the mismatches of args, one JSON object, with the schema.
func (s *Schema) Check(args json.RawMessage) []Mismatch {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if err := CheckDepth(args); err != nil {
		return []Mismatch{{Message: err.Error()}}
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(args))
	if err != nil {
		return []Mismatch{{Message: "not JSON: " + err.Error()}}
	}
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](s.compiled.Validate(value)); ok {
		return mismatches(invalid, value)
	}
	return nil
}
