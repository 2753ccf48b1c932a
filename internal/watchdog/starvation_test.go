package watchdog

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSampleReportsOnlyLargeShare(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lates []time.Duration
		much  bool
	}{
		"nothing": {nil, false},
		"a pause": {[]time.Duration{5 * time.Second}, false},
		"starved": {[]time.Duration{time.Second, 3 * time.Second, 2 * time.Second}, true},
	} {
		began := time.Now()
		sum := sample{began: began}
		for _, late := range test.lates {
			sum.add(late)
		}
		if _, over := sum.elapsed(began.Add(logInterval - time.Millisecond)); over {
			t.Errorf("%s: told before a minute is over", name)
		}
		past, over := sum.elapsed(began.Add(logInterval))
		if !over || sum.exceedsShare(past) != test.much {
			t.Errorf("%s: over %v, much %v; want %v", name, over, sum.exceedsShare(past), test.much)
		}
	}
}

// A node that is not starved logs nothing.
func TestMeterLogsNothingWithoutStarvation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		m := StarvationMeter{
			Add:    func(s float64) { t.Errorf("%v seconds are counted", s) },
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}
		if err := m.Run(ctx); err != nil || log.Len() > 0 {
			t.Errorf("%v, %s", err, &log)
		}
	})
}
