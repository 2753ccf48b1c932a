package postgres

import (
	"testing"
	"time"
)

// A server that stops to answer delays the connections of a moment only.
func TestServerThatStopsToAnswerIsNotRecalled(t *testing.T) {
	t.Parallel()
	began := time.Now()
	r := serverRecall{server: "pg-2:5432"}
	for after, want := range map[time.Duration]bool{0: true, answerTime: true, answerTime + 1: false} {
		r.asked = began
		if after == 0 {
			r.asked = time.Time{}
		}
		if got := r.answers(began.Add(after)); got != want {
			t.Errorf("%s after a connection tried it: %t, want %t", after, got, want)
		}
	}
	if r.asked.IsZero() {
		t.Error("nothing was noted")
	}
}
