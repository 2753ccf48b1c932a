// Package argschema checks the arguments of jobs against JSON schemas.
package argschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/forge-scheduler/forge/internal/jsondepth"
)

// MaxSize is the most bytes of a schema.
const MaxSize = 256 << 10

// Schema is a JSON schema, of draft 2020-12 unless it names another. Formats such
// as date-time count.
type Schema struct {
	compiled *jsonschema.Schema
	root     map[string]any
}

// sealed refuses what a schema refers to outside of itself.
type sealed struct{}

// Load is part of jsonschema.URLLoader.
func (sealed) Load(string) (any, error) {
	return nil, errors.New("a schema may only refer to itself, as with #/$defs/NAME")
}

// address names the schema where the library wants a place.
const address = "forge:schema"

// Compile reads a schema. The error says what is wrong with it, and where.
func Compile(text []byte) (*Schema, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("%d bytes; want at most %d KiB", len(text), MaxSize>>10)
	}
	if err := jsondepth.Check(text); err != nil {
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

// wrongSchema names the place in the schema where the library does.
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

// plain hides the name that the schema has for the library alone.
func plain(text string) string { return strings.ReplaceAll(text, address, "") }

// Check returns what the schema refuses of args, which are one JSON object.
func (s *Schema) Check(args json.RawMessage) []Mismatch {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if err := jsondepth.Check(args); err != nil {
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
