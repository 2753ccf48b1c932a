package leaderstore

import (
	"testing"
	"time"
)

func TestSecondsAreRoundedToMicroseconds(t *testing.T) {
	t.Parallel()
	for microsecond := range int64(1_000_000) {
		if got := microseconds(float64(microsecond) / 1e6); got != time.Duration(microsecond)*time.Microsecond {
			t.Fatalf("%d µs became %v", microsecond, got)
		}
	}
}
