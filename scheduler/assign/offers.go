package assign

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/internal/wire"
)

// maxPayload keeps an offer's JSON under PostgreSQL's 8,000 bytes with room for
// the envelope.
const maxPayload = 7500

// letter is an offer with its addressee.
type letter struct {
	to    *member
	offer wire.Offer
}

// jobsByQueue are ids of jobs, by queue.
type jobsByQueue map[string][]int64

// letters numbers and packs what each member is to be offered. A member with
// nothing assigned is asked for its credit.
func (b *board) letters(assigned map[*member]jobsByQueue, l *limits, ask []*member, now time.Time) []letter {
	var out []letter
	for _, m := range b.members {
		jobs := assigned[m]
		if len(jobs) == 0 {
			if slices.Contains(ask, m) {
				out = append(out, b.write(m, nil, false, now))
			}
			continue
		}
		free, limited := l.split(jobs)
		for _, part := range pack(free) {
			out = append(out, b.write(m, part, false, now))
		}
		for _, part := range pack(limited) {
			out = append(out, b.write(m, part, true, now))
		}
	}
	return out
}

func (b *board) write(m *member, jobs jobsByQueue, limited bool, now time.Time) letter {
	m.seq++
	m.asked = now
	if len(jobs) > 0 {
		counts := make(map[string]int, len(jobs))
		for queue, ids := range jobs {
			counts[queue] = len(ids)
		}
		m.offers = append(m.offers, sent{seq: m.seq, at: now, byQueue: counts})
	}
	return letter{to: m, offer: wire.Offer{Term: b.term, Seq: m.seq, Jobs: jobs, Limited: limited}}
}

// pack splits jobs into offers that each fit a payload.
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

// quotedSize bounds a queue's key in JSON: six bytes for a character that must
// be escaped, and its punctuation.
func quotedSize(queue string) int { return 6*len(queue) + 6 }
