package config

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// documented is a row of docs/configuration.md: a key with its default and its
// values. Where the code has no fixed default the text may say what it likes.
type documented struct{ Default, Values string }

// expectedDocs walks the structs and returns what the documentation must say of
// each key.
func expectedDocs() map[string]documented {
	docs := map[string]documented{}
	describe("", reflect.ValueOf(*Default()), docs)
	describe("jobs.NAME", reflect.ValueOf(defaultJob()), docs)
	describe("queues.NAME", reflect.ValueOf(Queue{}), docs)
	describe("crons", reflect.ValueOf(Cron{}), docs)
	describe("alerts", reflect.ValueOf(Alert{Severity: "warning"}), docs)
	describe("notify.NAME", reflect.ValueOf(Notify{RequireTLS: true, SendResolved: true}), docs)
	describe("cluster.leader_election.roles.NAME", reflect.ValueOf(RoleOverrides{}), docs)
	return docs
}

func describe(path string, v reflect.Value, docs map[string]documented) {
	for _, f := range fieldsOf(v.Type()) {
		value, here := v.FieldByIndex(f.index), join(path, f.name)
		switch {
		case f.typ.Kind() == reflect.Struct:
			describe(here, value, docs)
		case f.typ.Kind() == reflect.Map && f.typ.Elem().Kind() == reflect.Struct:
		case f.typ.Kind() == reflect.Slice && f.typ.Elem().Kind() == reflect.Struct:
		default:
			docs[here] = documented{Default: literal(value), Values: values(f)}
		}
	}
}

// literal is a default as TOML, or "" where there is none.
func literal(v reflect.Value) string {
	if v.IsZero() && v.Kind() != reflect.Bool {
		return ""
	}
	switch value := v.Interface().(type) {
	case Duration:
		return "`\"" + value.String() + "\"`"
	case []string:
		return "`[" + strings.Join(quotedAll(value), ", ") + "]`"
	case bool, int, int64:
		return fmt.Sprintf("`%v`", value)
	default:
		return fmt.Sprintf("`%q`", value)
	}
}

// values is what the tags allow, or "".
func values(f field) string {
	if words := f.tag.Get("oneof"); words != "" {
		return "`\"" + strings.Join(strings.Split(words, "|"), "\"`, `\"") + "\"`"
	}
	if low := f.tag.Get("min"); low != "" {
		return low + " to " + f.tag.Get("max")
	}
	return ""
}

var (
	docsHeading = regexp.MustCompile("^### `\\[+([^\\]]+)\\]+`$")
	docsLiteral = regexp.MustCompile("^`[^`]*`$")
	docsRow     = regexp.MustCompile("^\\| `([a-z0-9_]+)` \\| ([^|]*) \\| ([^|]*) \\| ([^|]+) \\|$")
)

func TestDocumentationAgrees(t *testing.T) {
	t.Parallel()
	section, found := "", map[string]documented{}
	want := expectedDocs()
	for line := range strings.Lines(readText(t, "../../docs/configuration.md")) {
		line = strings.TrimSpace(line)
		if heading := docsHeading.FindStringSubmatch(line); heading != nil {
			section = heading[1]
		}
		row := docsRow.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		path := join(section, row[1])
		if _, twice := found[path]; twice {
			t.Errorf("%s is documented twice", path)
		}
		entry := documented{Default: row[2], Values: row[3]}
		if want[path].Default == "" && !docsLiteral.MatchString(entry.Default) {
			entry.Default = "" // in words
		}
		if want[path].Values == "" && !strings.Contains(entry.Values, " to ") {
			entry.Values = ""
		}
		found[path] = entry
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("docs/configuration.md differs (-code +docs):\n%s", diff)
	}
}
