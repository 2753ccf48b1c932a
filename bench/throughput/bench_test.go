package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// The bench starts this program again as its nodes.
func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" {
		rig.Main("throughput", run)
	}
	os.Exit(m.Run())
}

// The bench itself, on a small scale: whether it is fast says nothing here.
func TestBenchMeasuresAll(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	args := []string{"-trials", "1", "-jobs", "500", "-length", "300ms", "-share", "0.001", "-parts", "worked_1_node,insert,start"}
	if err := run(t.Context(), args, &out, &errs); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last rig.Result
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Bench != "throughput" || last.Settings["jobs"] != 500.0 {
		t.Errorf("%+v", last)
	}
	for _, key := range []string{"worked_1_node", "insert_single", "insert_batch", "wal_per_job"} {
		if last.Ratios[key] <= 0 || last.Values[key] <= 0 || last.Values["river_"+key] <= 0 {
			t.Errorf("no %s in %+v", key, last)
		}
	}
	for _, key := range []string{"graphile_1_node", "graphile_wal_per_job"} {
		if last.Ratios[key] <= 0 {
			t.Errorf("no %s in %v", key, last.Ratios)
		}
	}
	for _, key := range []string{"graphile_worked_1_node", "start_p50_ms", "start_p99_ms", "river_start_p50_ms"} {
		if last.Values[key] <= 0 {
			t.Errorf("no %s in %v", key, last.Values)
		}
	}
}

func TestReportComparesPairs(t *testing.T) {
	t.Parallel()
	r := newReport(options{})
	for i, ours := range []float64{200, 900, 330} {
		r.add("forge", measure{"worked_3_nodes", perSecond}, ours)
		r.add("river", measure{"worked_3_nodes", perSecond}, float64(100*(i+1)))
		r.add("forge", measure{"wal_per_job", bytes}, 1000)
		r.add("river", measure{"wal_per_job", bytes}, float64(2000+i))
		r.add("forge", measure{"rows_slow_down_percent", percent}, float64(i)-1)
		r.add("river", measure{"rows_slow_down_percent", percent}, 4)
		r.add("graphile", measure{"worked_3_nodes", perSecond}, 660)
	}
	r.addFigures("forge", map[string]float64{"start_p50_ms": 1.5, "unheard_of": 1})
	got := r.result()
	for key, want := range map[string]float64{
		"worked_3_nodes": 330, "worked_3_nodes_min": 200, "river_worked_3_nodes_max": 300,
		"ratio_worked_3_nodes_max": 4.5, "graphile_worked_3_nodes": 660, "rows_slow_down_percent": 0, "start_p50_ms": 1.5,
	} {
		if value, ok := got.Values[key]; !ok || value != want {
			t.Errorf("%s: %v, want %v", key, value, want)
		}
	}
	if len(got.Ratios) != 3 || got.Ratios["worked_3_nodes"] != 2 || got.Ratios["wal_per_job"] != 2 || got.Ratios["graphile_3_nodes"] != 0.5 {
		t.Errorf("ratios %v", got.Ratios)
	}
	var out strings.Builder
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "200 to 900") || !strings.Contains(out.String(), "2.00x") {
		t.Errorf("%s", out.String())
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(c.values); got != c.want {
			t.Errorf("%v: %v, want %v", c.values, got, c.want)
		}
	}
}

func TestUnknownPartIsRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-parts", "worked_1_node,insertion"}, {"-trials", "0"}, {"-share", "2"}, {"-jobs", "1"}, {"-length", "1ms"},
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}
