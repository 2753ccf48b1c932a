package dashboard

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
)

// Readers share one run of the checks. A check that panics or fails ends neither the node nor
// the page.
func TestDoctorPage(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	options := optionsOf(c)
	var runs atomic.Int64
	options.Cluster.Doctor = func(context.Context) ([]cluster.Finding, error) {
		runs.Add(1)
		return []cluster.Finding{
			{Check: "pooler", Status: "ok", Detail: "there is none"},
			{Check: "clock", Status: "warn", Detail: "it is <b>wrong</b>", Remedy: "set it"},
			{Check: "grants", Status: "fail", Detail: "one is missing", Remedy: "GRANT it"},
		}, nil
	}
	h := New(options)
	for range 3 {
		page := get(t, h, "/doctor").Body.String()
		for _, want := range []string{"1 check fails, 1 warning, 1 is ok.", "it is &lt;b&gt;wrong&lt;/b&gt;", "GRANT it", `href="/config"`} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %s", want)
			}
		}
		if strings.Index(page, "Grants") > strings.Index(page, "Clock") {
			t.Error("the failed check is not the first")
		}
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("three requests ran the checks %d times", n)
	}
	options.Cluster.Doctor = func(context.Context) ([]cluster.Finding, error) { panic("out of luck") }
	if w := get(t, New(options), "/doctor"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "The checks are running.") {
		t.Errorf("after a panic: %d %s", w.Code, w.Body)
	}
	options.Cluster.Doctor = nil
	if w := get(t, New(options), "/doctor"); w.Code != http.StatusNotFound {
		t.Errorf("without checks: %d", w.Code)
	}
}
