package dashboard

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
)

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A body of 70 kB costs little, whatever its shape: it is rejected before anything is built
// from it, and the error message is bounded.
func TestHostileBodiesCostLittle(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	h := handlerOf(dashboardtest.New())
	post(t, h, "/api/v1/jobs", jsonType, "{}") // builds what the process builds once
	nested := func(opening, closing string, levels int) string {
		return strings.Repeat(opening, levels) + "1" + strings.Repeat(closing, levels)
	}
	long := strings.Repeat("k", 30_000)
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"objects":             {nested(`{"a":`, "}", 9_999), http.StatusBadRequest},
		"lists":               {`{"args":` + nested("[", "]", 9_990) + "}", http.StatusBadRequest},
		"no end":              {strings.Repeat(`{"a":[`, 11_000), http.StatusBadRequest},
		"in args":             {`{"kind":"dump","args":` + nested(`{"a":`, "}", 64) + "}", http.StatusBadRequest},
		"unknown fields":      {"{" + strings.Repeat(`"b":1,`, 11_000) + `"a":1}`, http.StatusUnprocessableEntity},
		"long unknown fields": {`{"` + long + `":1,"` + long + `1":1}`, http.StatusUnprocessableEntity},
		"repeated below a long name": {
			`{"kind":"dump","args":{"` + long + `":{` + strings.Repeat(`"a":1,`, 6_000) + `"a":1}}}`, http.StatusUnprocessableEntity,
		},
		"a list below a long name": {
			`{"kind":"dump","args":{"` + long + `":[` + strings.Repeat("1,", 15_000) + `1]}}`, http.StatusCreated,
		},
	} {
		var status, answered int
		cost := allocated(func() {
			w := post(t, h, "/api/v1/jobs", jsonType, c.body)
			status, answered = w.Code, w.Body.Len()
		})
		if status != c.status || answered > 32<<10 || cost > 16<<20 {
			t.Errorf("%s: %d bytes: status %d, an answer of %d bytes, %d MiB allocated", name, len(c.body), status, answered, cost>>20)
		}
	}
}

// Deeply nested JSON in the database is shown unchanged.
func TestDeepArgsAreNotIndented(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	raw := []byte(strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000))
	var shown string
	if cost := allocated(func() { shown = format.PrettyJSON(raw) }); cost > 1<<20 || shown != string(raw) {
		t.Errorf("%d MiB allocated for %d bytes", cost>>20, len(shown))
	}
}
