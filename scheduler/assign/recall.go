package assign

import "time"

const (
	// A recall waits at first for minRecallWait for running claims, during which no others begin. If
	// that is too short, the next one waits for twice as long, at most maxRecallWait.
	minRecallWait, maxRecallWait = 50 * time.Millisecond, 2 * time.Second
	// recallShare is the minimum time between two recalls, in waits.
	recallShare = 10
	// Between two recalls of offers that were not claimed in time are at least minRecallGap, and more
	// while each recall is followed by another one, at most maxRecallGar.
	minRecallGap, maxRecallGap = 500 * time.Millisecond, 4 * time.Second
)

// recallLimiter limits how often offers are recalled. The zero value has not recalled any.
type recallLimiter struct {
	next time.Time     // when the next recall may come
	wait time.Duration // of the next recall, after one that claims have delayed
	gap  time.Duration // after the last recall
}

// isDue reports whether offers are to be recalled now: because the loop begins, or because offers were
// not claimed in time.
func (r *recallLimiter) isDue(begins, unclaimed bool, now time.Time) bool {
	if !now.Before(r.next) {
		return begins || unclaimed
	}
	return begins && r.wait == 0 // no claims have delayed it
}

// timeout returns how long the next recall may wait.
func (r *recallLimiter) timeout() time.Duration { return max(r.wait, minRecallWait) }

// delayed notes that claims have taken longer than timeout.
func (r *recallLimiter) delayed(now time.Time) {
	r.next = now.Add(recallShare * r.timeout())
	r.wait = min(2*r.timeout(), maxRecallWait)
}

// done notes a recall.
func (r *recallLimiter) done(now time.Time) {
	if now.Sub(r.next) > maxRecallGap {
		r.gap = 0
	}
	r.gap = min(max(2*r.gap, minRecallGap), maxRecallGap)
	r.next, r.wait = now.Add(r.gap), 0
}
