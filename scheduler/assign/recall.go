package assign

import "time"

const (
	// A recall waits at first for minRecallWait for running claims, during which no others begin. If
	// that is too short, the next one waits for twice as long, at most maxRecallWait.
	minRecallWait, maxRecallWait = 50 * time.Millisecond, 2 * time.Second
	// recallShare is the minimum time between two recalls, in waits.
	recallShare = 10
	// Between two recalls of offers that were not claimed in time are at least minRecallGap, and more
	// while each recall is followed by another one, at most maxRecallGap.
	minRecallGap, maxRecallGap = 500 * time.Millisecond, 4 * time.Second
)

// recallPace is how often offers are recalled. The zero value is that of a loop that has not recalled
// any.
type recallPace struct {
	// next is when the next recall may come.
	next time.Time
	wait time.Duration
	gap  time.Duration
}

// isDue reports whether offers are to be recalled now: because the loop begins, or because offers were
// not claimed in time.
func (p *recallPace) isDue(begins, unclaimed bool, now time.Time) bool {
	if !now.Before(p.next) {
		return begins || unclaimed
	}
	return begins && p.wait == 0 // no claims have delayed it
}

// timeout returns how long the next recall may wait.
func (p *recallPace) timeout() time.Duration { return max(p.wait, minRecallWait) }

// delayed notes that claims have taken longer than timeout.
func (p *recallPace) delayed(now time.Time) {
	p.next = now.Add(recallShare * p.timeout())
	p.wait = min(2*p.timeout(), maxRecallWait)
}

// done notes a recall.
func (p *recallPace) done(now time.Time) {
	if now.Sub(p.next) > maxRecallGap {
		p.gap = 0
	}
	p.gap = min(max(2*p.gap, minRecallGap), maxRecallGap)
	p.next, p.wait = now.Add(p.gap), 0
}
