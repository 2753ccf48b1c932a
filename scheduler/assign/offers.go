package assign

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/internal/wire"
)

// maxPayload is the maximum size of an offer's JSON. PostgreSQL's limit is 8,000 bytes,
// which leaves room for the envelope.
const maxPayload = 7500

// addressedOffer is an offer and its receiver.
type addressedOffer struct {
	to    *member
	offer wire.Offer
}

// jobsByQueue contains job ids by queue.
type jobsByQueue map[string][]int64

// addressOffers numbers and packs the offers to each member. A member in creditRequests without
// assigned jobs gets an empty offer, which requests its credit.
func (t *nodeTable) addressOffers(assigned map[*member]jobsByQueue, l *limits, creditRequests []*member, now time.Time) []addressedOffer {
	var out []addressedOffer
	for _, m := range t.members {
		jobs := assigned[m]
		if len(jobs) == 0 {
			if slices.Contains(creditRequests, m) {
				out = append(out, t.newOffer(m, nil, false, now))
			}
			continue
		}
		free, limited := l.split(jobs)
		for _, part := range pack(free) {
			out = append(out, t.newOffer(m, part, false, now))
		}
		for _, part := range pack(limited) {
			out = append(out, t.newOffer(m, part, true, now))
		}
	}
	return out
}

func (t *nodeTable) newOffer(m *member, jobs jobsByQueue, limited bool, now time.Time) addressedOffer {
	m.seq++
	m.creditRequestedAt = now
	if len(jobs) > 0 {
		counts := make(map[string]int, len(jobs))
		for queue, ids := range jobs {
			counts[queue] = len(ids)
		}
		m.offers = append(m.offers, sentOffer{seq: m.seq, at: now, byQueue: counts})
	}
	return addressedOffer{to: m, offer: wire.Offer{Term: t.term, Seq: m.seq, Jobs: jobs, Limited: limited}}
}

// pack splits jobs into offers that fit into a payload.
func pack(jobs jobsByQueue) []jobsByQueue {
	var (
		parts       []jobsByQueue
		part        jobsByQueue
		count, size int
	)
	for _, queue := range slices.Sorted(maps.Keys(jobs)) {
		for _, id := range jobs[queue] {
			need := len(strconv.FormatInt(id, 10)) + 1
			if _, ok := part[queue]; !ok {
				need += quotedSize(queue)
			}
			if part == nil || count == wire.MaxOfferIDs || size+need > maxPayload {
				part, count, size = jobsByQueue{}, 0, 0
				parts = append(parts, part)
				need = len(strconv.FormatInt(id, 10)) + 1 + quotedSize(queue)
			}
			part[queue] = append(part[queue], id)
			count, size = count+1, size+need
		}
	}
	return parts
}

// quotedSize returns the maximum size of a queue's key in JSON: six bytes for each
// escaped character, and punctuation.
func quotedSize(queue string) int { return 6*len(queue) + 6 }
