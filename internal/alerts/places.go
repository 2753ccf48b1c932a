package alerts

import (
	"slices"
	"time"
)

const (
	// maxSends is the most notifications that are sent at the same time.
	maxSends = 64
	// maxSendsPerReceiver is the most of them that go to one receiver while more than half of
	// maxSends is free. Otherwise it is one, so that receivers that hang leave places for others.
	maxSendsPerReceiver = 8
)

// places keeps which notifications are being sent, and decides to which receivers more may be sent.
type places struct {
	sends map[int64]string // receivers by the id of the notification
	// skipped has the times until which receivers are left out, because other transactions have
	// locked their notifications.
	skipped map[string]time.Time
}

func newPlaces() *places {
	return &places{sends: map[int64]string{}, skipped: map[string]time.Time{}}
}

// free returns how many more notifications may be sent to a receiver.
func (p *places) free(receiver string) int {
	most := maxSendsPerReceiver
	if len(p.sends) >= maxSends/2 {
		most = 1
	}
	for _, other := range p.sends {
		if other == receiver {
			most--
		}
	}
	return max(0, min(most, maxSends-len(p.sends)))
}

// ids returns the notifications that are being sent; it is never nil.
func (p *places) ids() []int64 {
	ids := make([]int64, 0, len(p.sends))
	for id := range p.sends {
		ids = append(ids, id)
	}
	return ids
}

// unavailable returns the receivers to which nothing more may be sent now; it is never nil. They
// remain unavailable for wait, at most for limit, unless a send ends.
func (p *places) unavailable(now time.Time, limit time.Duration) (receivers []string, wait time.Duration) {
	receivers, wait = []string{}, limit
	for receiver, until := range p.skipped {
		left := until.Sub(now)
		if left <= 0 {
			delete(p.skipped, receiver)
			continue
		}
		receivers, wait = append(receivers, receiver), min(wait, left)
	}
	for _, receiver := range p.sends {
		if p.free(receiver) == 0 && !slices.Contains(receivers, receiver) {
			receivers = append(receivers, receiver)
		}
	}
	return receivers, wait
}
