package assign

import (
	"testing"
	"time"
)

// Recalls that claims delay become rarer and wait longer, and so do those that follow each other.
func TestRecallLimiter(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var p recallLimiter
	due := func(what string, begins, unclaimed, want bool) {
		t.Helper()
		if got := p.isDue(begins, unclaimed, now); got != want {
			t.Errorf("%s: due %t, want %t", what, got, want)
		}
	}
	due("at the beginning", true, false, true)
	p.delayed(now)
	due("after a delay", true, false, false)
	if p.timeout() != 2*minRecallWait {
		t.Errorf("then it waits for %s", p.timeout())
	}
	now = now.Add(recallShare * minRecallWait)
	due("ten times as long after it", true, false, true)
	for range 20 {
		p.delayed(now)
	}
	if p.timeout() != maxRecallWait || p.next != now.Add(recallShare*maxRecallWait) {
		t.Errorf("at last it waits for %s, next in %s", p.timeout(), p.next.Sub(now))
	}
	now = p.next
	p.done(now)
	due("after a recall", false, true, false)
	due("when another loop's offers must be recalled", true, false, true)
	now = now.Add(minRecallGap)
	due("half a second later, of nothing", false, false, false)
	due("half a second later", false, true, true)
	for range 9 {
		now = p.next
		p.done(now)
	}
	if gap := p.next.Sub(now); gap != maxRecallGap {
		t.Errorf("after many recalls, the next one comes in %s", gap)
	}
	now = p.next.Add(maxRecallGap + time.Second)
	p.done(now)
	if gap := p.next.Sub(now); gap != minRecallGap {
		t.Errorf("after a pause, the next one comes in %s", gap)
	}
}
