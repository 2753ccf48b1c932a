package argschema

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const order = `{
  "type": "object",
  "required": ["customer", "items"],
  "additionalProperties": false,
  "properties": {
    "customer": {"type": "string", "minLength": 1, "title": "Customer", "description": "Who ordered."},
    "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 1},
    "speed": {"enum": ["slow", "fast", 3], "default": "slow"},
    "due": {"type": ["string", "null"], "format": "date"},
    "how": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^x"}]},
    "who": {"oneOf": [{"minimum": 1}, {"minimum": 2}]}
  },
  "$defs": {"item": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer", "minimum": 1}}}}
}`

func compile(t *testing.T, text string) *Schema {
	t.Helper()
	schema, err := Compile([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestCheck(t *testing.T) {
	t.Parallel()
	schema := compile(t, order)
	for args, want := range map[string][]string{
		`{"customer": "Ada", "items": [{"id": 1}], "speed": 3, "due": null, "how": "x", "who": 1}`: nil,
		``: {"customer: missing", "items: missing"},
		`{"customer": 7, "items": [{"id": 1}, {"id": "2"}, {}]}`: {
			"customer: wrong type (got number); want string", "items[1].id: wrong type (got string); want integer", "items[2].id: missing",
		},
		`{"customer": "", "items": []}`:                                {"customer: minLength: got 0, want 1", "items: minItems: got 0, want 1"},
		`{"customer": "a", "items": [{"id": 0}], "speed": "quick"}`:    {"items[0].id: minimum: got 0, want 1", `speed: not one of the values (got "quick"); want "slow", "fast", 3`},
		`{"customer": "a", "items": [{"id": 1}], "coustomer": "b"}`:    {"coustomer: not a name that the schema has"},
		`{"customer": "a", "items": [{"id": 1}], "due": "2026-02-30"}`: {`due: not a date (got "2026-02-30")`},
		`{"customer": "a", "items": [{"id": 1}], "how": "y"}`:          {`how: fits none of anyOf: wrong type (got string); want integer, or 'y' does not match pattern '^x'`},
		`{"customer": "a", "items": [{"id": 1}], "who": 2}`:            {"who: fits oneOf[0] and oneOf[1]; want one alone"},
		`{"customer": "a", "items": [{"id": 1}], "who": 0}`:            {"who: fits none of oneOf: minimum: got 0, want 1, or minimum: got 0, want 2"},
		`{"customer": "a", "items": {"0": {"id": 1}}}`:                 {"items: wrong type (got object); want array"},
		`{"a": `: {"not JSON: unexpected EOF"},
	} {
		var got []string
		for _, mismatch := range schema.Check(json.RawMessage(args)) {
			got = append(got, mismatch.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{`:                  "not JSON: unexpected EOF",
		`[]`:                 `not an object; want a schema such as {"type": "object", "required": ["name"]}`,
		`{"type": "array"}`:  `type: arguments are always an object (got array); want object`,
		`{"required": "id"}`: "required: wrong type (got string); want array",
		`{"properties": {"a": {"type": "strng"}}}`:          `properties.a.type: fits none of anyOf: not one of the values (got "strng"); want "array", "boolean", "integer", "null", "number", "object", "string", or wrong type (got string); want array`,
		`{"properties": {"a": {"pattern": "("}}}`:           "properties.a.pattern: not a regex (got \"(\")",
		`{"$ref": "https://example.com/schema"}`:            "https://example.com/schema: a schema may only refer to itself, as with #/$defs/NAME",
		`{"$ref": "file:///etc/passwd"}`:                    "file:///etc/passwd: a schema may only refer to itself, as with #/$defs/NAME",
		`{"$ref": "#/$defs/gone"}`:                          `json-pointer in "#/$defs/gone" not found`,
		`{"title": "` + strings.Repeat("x", MaxSize) + `"}`: "262157 bytes; want at most 256 KiB",
	} {
		if _, err := Compile([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%.60s: got %v, want %s", text, err, want)
		}
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	want := []Field{
		{Name: "customer", Types: "string", Title: "Customer", Description: "Who ordered.", Required: true},
		{Name: "items", Types: "array", Required: true},
		{Name: "due", Types: "string or null"},
		{Name: "how"},
		{Name: "speed", Values: []string{`"slow"`, `"fast"`, "3"}, Default: `"slow"`},
		{Name: "who"},
	}
	if diff := cmp.Diff(want, compile(t, order).Fields()); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if got := compile(t, `{"type": "object", "properties": {"any": true}}`).Fields(); !cmp.Equal(got, []Field{{Name: "any"}}) {
		t.Errorf("got %+v", got)
	}
	if got := compile(t, `{}`).Fields(); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
}

// TestCheckBoundsMismatches checks that thousands of mismatches at a long name are
// bounded, and so is their cost.
func TestCheckBoundsMismatches(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	schema := compile(t, `{"additionalProperties": {"items": {"type": "string"}}}`)
	args := `{"` + strings.Repeat("k", 30_000) + `":[` + strings.Repeat("1,", 15_000) + `1]}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	found := schema.Check(json.RawMessage(args))
	runtime.ReadMemStats(&after)
	if len(found) != mostMismatches {
		t.Errorf("%d mismatches, want %d", len(found), mostMismatches)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 128<<20 {
		t.Errorf("%d bytes of args cost %d MiB", len(args), allocated>>20)
	}
}

func TestDepthIsBounded(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"not":`, 65) + "true" + strings.Repeat("}", 65)
	const want = "nested too deeply at byte 448; want at most 64 levels"
	if _, err := Compile([]byte(deep)); err == nil || err.Error() != want {
		t.Errorf("a schema: got %v, want %s", err, want)
	}
	found := compile(t, `{}`).Check(json.RawMessage(deep))
	if len(found) != 1 || found[0].Message != want {
		t.Errorf("args: got %v, want %s", found, want)
	}
}
