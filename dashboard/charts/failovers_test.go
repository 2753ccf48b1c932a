package charts

import (
	"testing"
	"time"
)

func TestFailoverHeights(t *testing.T) {
	t.Parallel()
	for gap, want := range map[time.Duration]string{
		0: "100.000%", time.Millisecond: "83.333%", time.Second: "33.333%", time.Hour: "0.000%",
	} {
		if got := height(gap); got != want {
			t.Errorf("%v stands at %s, want %s", gap, got, want)
		}
	}
}
