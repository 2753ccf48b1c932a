package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const daysSchema = `{"additionalProperties":false,"properties":{"days":{"type":"integer"},"who":{"enum":["a",null]}},"required":["days"]}`

// schemaCatalogue is entry 70: what can be wrong with a schema, and with the args
// of a cron whose job has one.
var schemaCatalogue = []bad{
	{"a table", shellWith(`schema = { required = ["days"], properties = { days = { type = "integer" } } }`), nil},
	{"a text", shellWith(`schema = '` + daysSchema + `'`), nil},
	{"no schema", shellWith(`schema = { type = "objct" }`), []string{
		`forge.toml:4:10: jobs.xy.schema: not a schema: type: fits none of anyOf: not one of the values (got "objct"); want "array", "boolean", "integer", "null", "number", "object", "string", or wrong type (got string); want array`,
	}},
	{"no JSON", shellWith(`schema = '{"type": '`), []string{"forge.toml:4:10: jobs.xy.schema: not a schema: not JSON: unexpected EOF"}},
	{"a text that jsonb refuses", shellWith(`schema = '{"title": "\u0000"}'`), []string{
		"forge.toml:4:10: jobs.xy.schema: not a schema: title: a NUL character, which PostgreSQL's jsonb refuses; want text without it",
	}},
	{"half a character", shellWith(`schema = '{"title": "\ud800"}'`), []string{
		`forge.toml:4:10: jobs.xy.schema: not a schema: half of a surrogate pair (got \ud800 at offset 11); want whole characters`,
	}},
	{"a number that jsonb refuses", shellWith(`schema = '{"default": 1e999999}'`), []string{
		"forge.toml:4:10: jobs.xy.schema: not a schema: default: a number out of range (got 1e999999); want 1e-323 to 1.7e308, or 0",
	}},
	{"a key that stands twice", shellWith(`schema = '{"title": "a", "title": "b"}'`), []string{
		"forge.toml:4:10: jobs.xy.schema: not a schema: title: stands twice; want each name once",
	}},
	{"no file", shellWith(`schema = "/nowhere/x.json"`), []string{"forge.toml:4:10: jobs.xy.schema: not a schema: /nowhere/x.json: no such file or directory"}},
	{"a directory", shellWith(`schema = "/"`), []string{"forge.toml:4:10: jobs.xy.schema: not a schema: /: not a regular file"}},
	{"empty", shellWith(`schema = ""`), []string{"forge.toml:4:10: jobs.xy.schema: not a schema: an empty path"}},
	{"a number", shellWith(`schema = 5`), []string{"forge.toml:4:10: jobs.xy.schema: wrong type (got 5); want a JSON schema: a table, its text, or the path of a file"}},
	{"a number that JSON lacks", shellWith(`schema = { properties = { a = { minimum = inf } } }`), []string{
		"forge.toml:4:43: jobs.xy.schema.properties.a.minimum: not a number that JSON has (got +Inf); want a finite number",
	}},
	{"args that fit", shellWith(`schema = '`+daysSchema+`'`) + inCron(daily+`job = "xy"`+"\nargs = { days = 7, who = \"a\" }"), nil},
	{"args that do not fit", shellWith(`schema = '`+daysSchema+`'`) + inCron(daily+`job = "xy"`+"\nargs = { days = \"7\", who = \"b\", day = 1 }"), []string{
		"forge.toml:9:17: crons[0].args.days: wrong type (got string); want integer",
		`forge.toml:9:28: crons[0].args.who: not one of the values (got "b"); want "a", null`,
		"forge.toml:9:39: crons[0].args.day: not a name that the schema has",
	}},
	{"an arg that is missing", shellWith(`schema = '`+daysSchema+`'`) + inCron(daily+`job = "xy"`+"\nargs = { who = \"a\" }"), []string{
		`forge.toml:9:8: crons[0].args: "days" is missing`,
	}},
	{"no args at all", shellWith(`schema = '`+daysSchema+`'`) + inCron(daily+`job = "xy"`), []string{`forge.toml:5:3: crons[0].args: "days" is missing`}},
}

func TestSchemaCatalogue(t *testing.T) {
	t.Parallel()
	for _, c := range schemaCatalogue {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, report, err := parseWith(c.text)
			if diff := cmp.Diff(c.want, messages(report)); diff != "" || (err != nil) != (len(c.want) > 0) {
				t.Errorf("error %v, report (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestSchemaForms: each form is the same schema, stored with the cluster's
// sections, shown again, and no part of what the job is.
func TestSchemaForms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "days.json"), []byte(strings.ReplaceAll(daysSchema, ",", ",\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	plain := mustParse(t, shellWith(""))
	for _, form := range []string{`"days.json"`, `'` + daysSchema + `'`, `{ required = ["days"], additionalProperties = false, properties = { days = { type = "integer" } } }`} {
		path := filepath.Join(dir, "forge.toml")
		if err := os.WriteFile(path, []byte(shellWith("schema = "+form)), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, _, err := Load(path, LoadOptions{Environ: func() []string { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		sections, _, err := cfg.ClusterSections()
		if err != nil {
			t.Fatal(err)
		}
		var inForce struct {
			Jobs map[string]struct{ Schema json.RawMessage }
		}
		err = json.Unmarshal(sections, &inForce)
		schema := Schema(inForce.Jobs["xy"].Schema)
		if err != nil || schema != cfg.Jobs["xy"].Schema || !json.Valid([]byte(schema)) {
			t.Errorf("%s is in force as %s, %v", form, schema, err)
		}
		if got := CheckArgsBy(schema, []byte(`{"days": 1.5}`)); got == nil || got.Error() != "args.days: wrong type (got number); want integer" {
			t.Errorf("%s: %v", form, got)
		}
		without, _, _ := plain.ClusterSections()
		if diff := cmp.Diff(digests(t, without), digests(t, sections)); diff != "" {
			t.Errorf("%s changes what the job is: %s", form, diff)
		}
		if again := mustParse(t, showText(t, cfg)); again.Jobs["xy"].Schema != schema {
			t.Errorf("%s is shown as\n%s", form, showText(t, cfg))
		}
	}
}

func digests(t *testing.T, sections []byte) map[string]string {
	t.Helper()
	found, err := Definitions(sections)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestSchemaFileIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "large.json")
	if err := os.WriteFile(path, bytes.Repeat([]byte(" "), 256<<10+1), 0o600); err != nil {
		t.Fatal(err)
	}
	_, report, _ := parseWith(shellWith("schema = \"" + path + "\""))
	if want := "forge.toml:4:10: jobs.xy.schema: not a schema: " + path + ": 262145 bytes; want at most 256 KiB"; report.String() != want {
		t.Errorf("report %s, want %s", report, want)
	}
}

// TestGoKinds: a section of kind go says nothing of what runs, and takes no
// default that only the worker knows.
func TestGoKinds(t *testing.T) {
	t.Parallel()
	cfg := mustParse(t, "[jobs.greet]\nkind = \"go\"\npriority = 2\n")
	if diff := cmp.Diff(Job{Kind: "go", Queue: "default", Priority: 2}, cfg.Jobs["greet"], ignoreSecrets); diff != "" {
		t.Errorf("the job (-want +got):\n%s", diff)
	}
	sections, _, err := cfg.ClusterSections()
	if err != nil {
		t.Fatal(err)
	}
	if got := digests(t, sections); len(got) != 0 {
		t.Errorf("digests %v: a node whose file lacks the section could not run it", got)
	}
}

func TestSchemaErrorNamesTen(t *testing.T) {
	t.Parallel()
	var wrong SchemaError
	for i := range 12 {
		wrong = append(wrong, &ArgsError{Path: fmt.Sprintf("args.a[%d]", i), Message: "missing"})
	}
	if got := wrong.Error(); strings.Count(got, "missing") != 10 || !strings.HasSuffix(got, "args.a[9]: missing; and 2 more") {
		t.Errorf("got %s", got)
	}
	if err := CheckArgsBy("", []byte("{}")); err != nil {
		t.Errorf("no schema: %v", err)
	}
}
