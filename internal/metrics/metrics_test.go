package metrics_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/metrics"
)

func TestCountersStartAtZero(t *testing.T) {
	t.Parallel()
	m := metrics.New("v0")
	m.InitRoles("a", []string{"scheduler", "log_compactor"})
	m.InitCrons([]string{"nightly"})
	m.InitKinds([]string{"report"})
	m.InitQueues([]string{"default"})
	m.InitCompactor([]string{"events"})

	samples := snapshot(t, m)
	for _, want := range []metrics.Sample{
		{Name: "forge_leader_is_leader", Labels: map[string]string{"role": "scheduler", "node_id": "a"}},
		{Name: "forge_leader_failovers_total", Labels: map[string]string{"role": "log_compactor", "node_id": "a"}},
		{Name: "forge_leader_elections_total", Labels: map[string]string{"role": "scheduler", "node_id": "a", "result": "error"}},
		{Name: "forge_cron_ticks_total", Labels: map[string]string{"cron": "nightly", "verdict": "skipped_window"}},
		{Name: "forge_job_finished_total", Labels: map[string]string{"kind": "report", "outcome": "lost"}},
	} {
		if !slices.ContainsFunc(samples, func(s metrics.Sample) bool { return cmp.Equal(s, want) }) {
			t.Errorf("no series %v at 0", want)
		}
	}
	// Every declared counter has a series, and so has the histogram of gaps: the first gap of a
	// node shows in rate().
	for _, series := range m.Series() {
		if (series.Type == "counter" || series.Name == "forge_leader_gap_seconds") && !slices.ContainsFunc(samples, func(s metrics.Sample) bool { return s.Name == series.Name }) {
			t.Errorf("%s has no series at the start", series.Name)
		}
	}
}

func TestInitKeepsValues(t *testing.T) {
	t.Parallel()
	m := metrics.New("v0")
	m.SetLead("scheduler", "a", metrics.Lead{Since: time.Now(), TrustedUntil: time.Now().Add(time.Hour)})
	m.CronRuns.WithLabelValues("nightly").Inc()
	m.InitRoles("a", []string{"scheduler"})
	m.InitCrons([]string{"nightly"})
	if got := leading(t, m)["forge_leader_is_leader"]; got != 1 {
		t.Errorf("InitRoles changed is_leader to %v", got)
	}
	if got := testutil.ToFloat64(m.CronRuns.WithLabelValues("nightly")); got != 1 {
		t.Errorf("InitCrons changed the runs to %v", got)
	}
}

// The gauges of a lead change with time, not only when the lease is renewed, and
// return to 0 once the lead is no longer trusted.
func TestLeadGaugesAreComputedAtEachScrape(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New("v0")
		m.SetLead("scheduler", "a", metrics.Lead{Since: time.Now(), TrustedUntil: time.Now().Add(2 * time.Second)})
		for _, want := range []map[string]float64{
			{"forge_leader_is_leader": 1, "forge_leader_tenure_seconds": 0.5, "forge_leader_lease_remaining_seconds": 1.5},
			{"forge_leader_is_leader": 1, "forge_leader_tenure_seconds": 1, "forge_leader_lease_remaining_seconds": 1},
			{"forge_leader_is_leader": 1, "forge_leader_tenure_seconds": 1.5, "forge_leader_lease_remaining_seconds": 0.5},
			{"forge_leader_is_leader": 0, "forge_leader_tenure_seconds": 0, "forge_leader_lease_remaining_seconds": 0},
		} {
			time.Sleep(500 * time.Millisecond)
			if diff := cmp.Diff(want, leading(t, m)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	})
}

// leading returns the gauges of a lead by name.
func leading(t *testing.T, m *metrics.Metrics) map[string]float64 {
	t.Helper()
	gauges := map[string]float64{}
	for _, sample := range snapshot(t, m) {
		if strings.HasPrefix(sample.Name, "forge_leader_") {
			gauges[sample.Name] = sample.Value
		}
	}
	return gauges
}

func TestCronsBeyondMaximumShareLabel(t *testing.T) {
	t.Parallel()
	m := metrics.New("v0")
	names := make([]string, metrics.MaxCrons+5)
	for i := range names {
		names[len(names)-1-i] = fmt.Sprintf("cron-%04d", i) // the order in the file does not matter
	}
	m.InitCrons(names)
	if got := testutil.CollectAndCount(m.CronRuns); got != metrics.MaxCrons+1 {
		t.Errorf("%d series of runs, want %d and %s", got, metrics.MaxCrons, metrics.OtherCrons)
	}
	for name, want := range map[string]string{
		"cron-0000": "cron-0000", "cron-0999": "cron-0999", "cron-1000": metrics.OtherCrons, "new": metrics.OtherCrons,
	} {
		if got := m.CronLabel(name); got != want {
			t.Errorf("CronLabel(%q) = %q, want %q", name, got, want)
		}
	}
	m.InitCrons([]string{"another", "cron-0999"})
	if got := testutil.CollectAndCount(m.CronRuns); got != metrics.MaxCrons+1 {
		t.Errorf("a reload grew the series to %d", got)
	}
}

// Jobs may be enqueued with any kind. The configured kinds keep their labels.
func TestKindsBeyondMaximumShareLabel(t *testing.T) {
	t.Parallel()
	m := metrics.New("v0")
	m.InitKinds([]string{"report"})
	for i := range metrics.MaxKinds + 5 {
		m.JobEnqueued.WithLabelValues(m.KindLabel(fmt.Sprintf("kind-%04d", i))).Inc()
	}
	if got := testutil.CollectAndCount(m.JobEnqueued); got != metrics.MaxKinds+1 {
		t.Errorf("%d series, want %d and %s", got, metrics.MaxKinds, metrics.OtherKinds)
	}
	if got := testutil.ToFloat64(m.JobEnqueued.WithLabelValues(metrics.OtherKinds)); got != 6 {
		t.Errorf("%v jobs of other kinds, want 6", got)
	}
	m.InitKinds([]string{"late"})
	for kind, want := range map[string]string{
		"report": "report", "late": "late", "kind-0998": "kind-0998", "kind-0999": metrics.OtherKinds,
	} {
		if got := m.KindLabel(kind); got != want {
			t.Errorf("KindLabel(%q) = %q, want %q", kind, got, want)
		}
	}
}

// The schema has a check constraint on the verdicts of the ledger; each verdict
// must have a counter, except those of operators' ticks, which no node counts.
func TestEveryLedgerVerdictHasCounter(t *testing.T) {
	t.Parallel()
	schema, err := os.ReadFile("../../migrations/063_baseline.sql")
	if err != nil {
		t.Fatal(err)
	}
	constraint := regexp.MustCompile(`(?s)verdict IN \((.*?)\)`).FindSubmatch(schema)
	if constraint == nil {
		t.Fatal("the schema has no check of the verdicts")
	}
	var want []string
	for _, quoted := range regexp.MustCompile(`'(\w+)'`).FindAllSubmatch(constraint[1], -1) {
		if verdict := string(quoted[1]); verdict != "triggered" && verdict != "backfilled" {
			want = append(want, verdict)
		}
	}
	m := metrics.New("v0")
	m.InitCrons([]string{"nightly"})
	var got []string
	for _, sample := range snapshot(t, m) {
		if sample.Name == "forge_cron_ticks_total" {
			got = append(got, sample.Labels["verdict"])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts of the schema (-) and of the metric (+):\n%s", diff)
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	m := metrics.New("v1")
	m.JobOrphaned.Add(2)
	m.JobRunning.WithLabelValues("report").Set(3)
	m.JobWait.WithLabelValues("report").Observe(1)
	m.JobWait.WithLabelValues("report").Observe(.3)
	m.JobWait.WithLabelValues("report").Observe(1000)
	want := []metrics.Sample{
		{Name: "forge_assignment_claims_total"},
		{Name: "forge_assignment_offers_total"},
		{Name: "forge_assignment_refused_total"},
		{Name: "forge_assignment_waiting"},
		{Name: "forge_build_info", Labels: map[string]string{"version": "v1"}, Value: 1},
		{Name: "forge_command_start_seconds"},
		{Name: "forge_command_starts_waiting"},
		{Name: "forge_compactor_merged_bytes_total"},
		{Name: "forge_compactor_merged_chunks_total"},
		{Name: "forge_compactor_packed_bytes_total"},
		{Name: "forge_compactor_passes_total", Labels: map[string]string{"result": "complete"}},
		{Name: "forge_compactor_passes_total", Labels: map[string]string{"result": "incomplete"}},
		{Name: "forge_config_last_reload_success_timestamp_seconds"},
		{Name: "forge_config_reload_success", Value: 1},
		{Name: "forge_config_reloads_total", Labels: map[string]string{"result": "failure"}},
		{Name: "forge_config_reloads_total", Labels: map[string]string{"result": "success"}},
		{Name: "forge_job_orphaned_total", Value: 2},
		{Name: "forge_job_rescued_total"},
		{Name: "forge_job_running", Labels: map[string]string{"kind": "report"}, Value: 3},
		{
			Name: "forge_job_wait_seconds", Labels: map[string]string{"kind": "report"}, Value: 3,
			Histogram: &metrics.Histogram{Sum: 1001.3, Buckets: map[string]float64{"0.5": 1, "1": 1, "+Inf": 1}},
		},
		{Name: "forge_node_ready"},
		{Name: "forge_node_starved_seconds_total"},
	}
	if diff := cmp.Diff(want, snapshot(t, m)); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	m := metrics.New("v1")
	m.InitRoles("a", []string{"scheduler"})
	recorder := httptest.NewRecorder()
	m.Handler(false).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	body := recorder.Body.String()
	for _, want := range []string{
		`forge_leader_is_leader{node_id="a",role="scheduler"} 0`, `forge_build_info{version="v1"} 1`, "go_goroutines",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// The aggregator identifies counters by their names.
func TestCounterNamesMatchTypes(t *testing.T) {
	t.Parallel()
	for _, series := range metrics.New("v0").Series() {
		if got := (metrics.Sample{Name: series.Name}).Counter(); got != (series.Type == "counter") {
			t.Errorf("%s is a %s, its name says otherwise", series.Name, series.Type)
		}
	}
}

func snapshot(t *testing.T, m *metrics.Metrics) []metrics.Sample {
	t.Helper()
	samples, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return samples
}
