package assign

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func newWaitGauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "wait"}, []string{"scope", "name", "limit", "key"})
}

// A report has the oldest job of each group, of those that were read since the report before
// the last one.
func TestWaitsForLimitsAreReported(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var w limitWaits
	gauge := newWaitGauge()
	series := func() map[string]float64 {
		all := map[string]float64{}
		for _, key := range []string{"a", "b"} {
			if s, err := gauge.GetMetricWithLabelValues("queue", "q", "key", key); err == nil {
				if seconds := testutil.ToFloat64(s); seconds > 0 {
					all[key] = seconds
				}
			}
		}
		return all
	}
	a, b := group{limitID: limitID{"queue", "q", "key"}, key: "a"}, group{limitID: limitID{"queue", "q", "key"}, key: "b"}
	w.report(now, gauge)
	w.note(a, now.Add(-3*time.Second))
	w.note(a, now.Add(-9*time.Second))
	w.note(a, now.Add(-time.Second))
	w.note(b, now)
	for _, step := range []struct {
		after time.Duration
		want  map[string]float64
	}{
		{waitReportInterval - 1, map[string]float64{}},
		{waitReportInterval, map[string]float64{"a": 14, "b": 5}},
		{2 * waitReportInterval, map[string]float64{"a": 19, "b": 10}},
		{3 * waitReportInterval, map[string]float64{}},
	} {
		w.report(now.Add(step.after), gauge)
		if diff := cmp.Diff(step.want, series()); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", step.after, diff)
		}
	}
}

// The values with the longest waits have series of their own, the others one together.
func TestWaitsForLimitsHaveFewSeries(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var w limitWaits
	for i := range 2 * maxTimedGroups {
		w.note(group{limitID: limitID{"job", "k", "rate"}, key: fmt.Sprint(i)}, now.Add(-time.Duration(i)*time.Second))
	}
	if len(w.current) != maxTimedGroups {
		t.Errorf("%d groups are timed", len(w.current))
	}
	gauge := newWaitGauge()
	w.report(now, gauge)
	if n := testutil.CollectAndCount(gauge); n != maxWaits+1 {
		t.Errorf("%d series", n)
	}
	if longest := testutil.ToFloat64(gauge.WithLabelValues("job", "k", "rate", "9999")); longest != 9999 {
		t.Errorf("the longest wait is %v", longest)
	}
	if other := testutil.ToFloat64(gauge.WithLabelValues("job", "k", "rate", otherKeys)); other != 9949 {
		t.Errorf("the longest other wait is %v", other)
	}
}
