package config

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Stored sections are read as the configuration that they were stored from.
func TestStoredSectionsAreRead(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../../forge.toml.example")
	if err != nil {
		t.Fatal(err)
	}
	numbers := full + "\n[[crons]]\nname = \"numbers\"\nschedule = \"@daily\"\ncommand = [\"true\"]\nargs = { a = 1, b = 2.5, c = 1e21, d = 3.0, e = [1, { f = true }], g = \"x\" }\n"
	schema := full + "\n[jobs.checked]\nkind = \"shell\"\ncommand = [\"true\"]\nschema = { type = \"object\", properties = { n = { type = \"integer\", maximum = 10 } } }\n"
	unique := full + "\n[jobs.last]\nkind = \"go\"\nunique = { by_args = [\"a\", \"b\"], debounce = \"5s\" }\n[jobs.all]\nkind = \"go\"\nunique = { by_args = true, replace = true }\n"
	for name, text := range map[string]string{"full": full, "example": string(example), "empty": "", "numbers": numbers, "schema": schema, "unique": unique} {
		stored, _ := sections(t, text, "TOKEN=one")
		read, err := FromSections([]byte(stored))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := json.Marshal(map[string]any{
			"crons": tree(reflect.ValueOf(read.Crons)), "jobs": tree(reflect.ValueOf(read.Jobs)),
			"queues": tree(reflect.ValueOf(read.Queues)), "alerts": tree(reflect.ValueOf(read.Alerts)),
		})
		if diff := cmp.Diff(stored, string(again)); err != nil || diff != "" {
			t.Errorf("%s is read as another configuration, %v (-stored +read):\n%s", name, err, diff)
		}
	}
}

func TestStoredSectionsOfOtherVersions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"crons": [{"name": "a", "moon": 1}]}`:               "crons[0].moon is not a key of this version",
		`{"workflows": {}}`:                                   "workflows is not a key of this version",
		`{"crons": {}}`:                                       "crons is stored as map[], which this version cannot read",
		`{"jobs": {"a": {"timeout": "soon"}}}`:                "jobs.a.timeout: ",
		`{"jobs": {"a": {"priority": "1"}}}`:                  "jobs.a.priority is stored as 1, which this version cannot read",
		`{"jobs": {"a": {"priority": 99999999999999999999}}}`: "jobs.a.priority is stored as 99999999999999999999",
		`{"jobs": {"a": {"command": [1]}}}`:                   "jobs.a.command[0] is stored as 1",
		`[]`:                                                  "decode the cluster's sections",
	} {
		if c, err := FromSections([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is read as %v, %v, want %q", text, c, err, want)
		}
	}
}
