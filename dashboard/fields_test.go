package dashboard

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
)

// An answer names all wrong fields at once.
func TestEveryWrongFieldIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, body string
		want       []string
	}{
		{"jobs", `{"kind": 7, "priority": "high", "args": {"a/b": {"x": 1, "x": 2}}, "colour": "red", "at": "noon"}`, []string{
			"#/args/a~1b/x: stands twice",
			"#/kind: must be a text (got 7)",
			`#/priority: must be a whole number (got "high")`,
			"#/colour: is unknown; the fields are kind, args, queue, priority, at, unique, weight, unique_args, unique_period, unique_queue, unique_states, no_unique, replace, debounce, max_wait, throttle",
			`#/at: must be a time such as 2026-11-20T15:04:05Z (got "noon")`,
		}},
		{"jobs", `{"priority": 9, "queue": "A b", "unique": "` + strings.Repeat("k", 1001) + `", "args": {"a": ["\u0000"]}}`, []string{
			"#/args/a/0: a NUL character, which PostgreSQL's jsonb refuses; want text without it",
			"#/kind: is missing",
			"#/priority: must be from 1 to 4 (got 9)",
			"#/queue: must be 1 to 64 lower-case letters and digits, with single _ or - between them",
			"#/unique: may have at most 1000 bytes",
		}},
		{"jobs", `{"kind": "dump", "unique": "misfit"}`, []string{"#/args/table: missing"}},
		{"crons/backup/backfill", `{"limit": 0.5}`, []string{"#/limit: must be a whole number (got 0.5)"}},
		{"crons/backup/backfill", `{"limit": 20000}`, []string{
			"#/from: is missing", "#/to: is missing", "#/limit: must be from 1 to 10000 (got 20000)",
		}},
		{"bulk/dead/retry", `{"older_than": "soon", "newer_than": "now", "all": true}`, []string{
			"#/older_than: must be a duration such as 90s, 6h or 2d", "#/newer_than: must be a duration such as 90s, 6h or 2d",
			"#: one or more of ids, group, kind, error, older_than, newer_than and filter are required, or all alone",
		}},
		{"bulk/dead/retry", `{"ids": [1, 9223372036854775808], "all": "yes"}`, []string{
			"#/ids: must be a list, each of it a whole number (got [1, 9223372036854775808])", `#/all: must be true or false (got "yes")`,
		}},
		{"bulk/jobs/cancel", `{"kind": ["` + strings.Repeat("x", 100) + `"]}`, []string{"#/kind: must be a text (got something of 104 bytes)"}},
	} {
		cluster := dashboardtest.New()
		w := post(t, handlerOf(cluster), "/api/v1/"+c.path, jsonType, c.body)
		answer := decode[web.Problem](t, w)
		var got []string
		for _, wrong := range answer.Errors {
			got = append(got, wrong.Pointer+": "+wrong.Detail)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || w.Code != http.StatusUnprocessableEntity || answer.Detail == "" || len(cluster.Done) > 0 {
			t.Errorf("%s %.80s: %d %q, did %v (-want +got):\n%s", c.path, c.body, w.Code, answer.Detail, cluster.Done, diff)
		}
	}
}
