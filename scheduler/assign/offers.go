package assign

import (
	"context"
	"fmt"
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
		for _, part := range pack(free, nil) {
			out = append(out, t.newOffer(m, part, false, now))
		}
		for _, part := range pack(limited, l.offered) {
			out = append(out, l.forClaim(t.newOffer(m, part, true, now)))
		}
	}
	return out
}

// forClaim adds to an offer of limited jobs what their claim compares and notes.
func (l *limits) forClaim(o addressedOffer) addressedOffer {
	o.offer.LimitVersion, o.offer.Rows, o.offer.Locks = l.version, map[string][]int64{}, map[string][][]int64{}
	for queue, ids := range o.offer.Jobs {
		for _, id := range ids {
			o.offer.Rows[queue] = append(o.offer.Rows[queue], l.offered[id].row)
			o.offer.Locks[queue] = append(o.offer.Locks[queue], l.offered[id].locks)
		}
	}
	return o
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

// pack splits jobs into offers that fit into a payload, with what it says of the limited ones.
func pack(jobs jobsByQueue, limited map[int64]offeredJob) []jobsByQueue {
	var (
		parts       []jobsByQueue
		part        jobsByQueue
		count, size int
	)
	for _, queue := range slices.Sorted(maps.Keys(jobs)) {
		queueSize := quotedSize(queue)
		if limited != nil {
			queueSize *= 3 // Jobs, Rows and Locks
		}
		for _, id := range jobs[queue] {
			own := jobSize(id, limited[id])
			need := own
			if _, ok := part[queue]; !ok {
				need += queueSize
			}
			if part == nil || count == wire.MaxOfferIDs || size+need > maxPayload {
				part, count, size = jobsByQueue{}, 0, 0
				parts = append(parts, part)
				need = own + queueSize
			}
			part[queue] = append(part[queue], id)
			count, size = count+1, size+need
		}
	}
	return parts
}

// jobSize returns the maximum size of a job in JSON, with its row and locks if it is limited.
func jobSize(id int64, limited offeredJob) int {
	size := len(strconv.FormatInt(id, 10)) + 1
	if limited.groups == nil {
		return size
	}
	size += len(strconv.FormatInt(limited.row, 10)) + 1 + len("null,")
	for _, lock := range limited.locks {
		size += len(strconv.FormatInt(lock, 10)) + 1
	}
	return size
}

// quotedSize returns the maximum size of a queue's key in JSON: six bytes for each
// escaped character, and punctuation.
func quotedSize(queue string) int { return 6*len(queue) + 6 }

// send notifies every node of its offers in one round trip. If the term is over, it sends
// nothing and returns leaderstore.ErrDeposed. The condition is that of the fence, without
// its lock: an offer writes nothing, and the claim checks the term again.
func (l *loop) send(ctx context.Context, offers []addressedOffer) error {
	channels, payloads := make([]string, len(offers)), make([]string, len(offers))
	for i, o := range offers {
		channels[i], payloads[i] = wire.OfferChannel(l.schema, o.to.incarnation), wire.Marshal(o.offer)
	}
	current, err := l.notifier.NotifyInTerm(ctx, l.fence.Role, l.fence.Term, l.fence.Incarnation, channels, payloads)
	if err == nil && !current {
		err = l.fence.Refusal(ctx, l.pool)
	}
	if err != nil {
		return fmt.Errorf("offer jobs: %w", err)
	}
	return nil
}

// claimTimeout is how long an offered job may stay unclaimed. It is longer if nodes poll
// for offers or if the database is slow: a second offer would make a slow database
// slower.
func (l *loop) claimTimeout() time.Duration {
	return l.offerTimeout + 3*l.delay + offerShare*l.sweepTook
}

// offer sends the assigned jobs, and requests credit from members whose report is
// overdue.
func (l *loop) offer(ctx context.Context, assigned map[*member]jobsByQueue) error {
	safety := l.lastStep.Sub(l.lastSafety) >= sweepInterval
	if safety {
		l.lastSafety = l.lastStep
	}
	offers := l.nodes.addressOffers(assigned, l.limits, l.nodes.membersToRequest(l.lastStep, safety), l.lastStep)
	if len(offers) == 0 {
		return nil
	}
	err := l.within(ctx, func(ctx context.Context) error { return l.send(ctx, offers) })
	offered := 0
	for _, addressed := range offers {
		for _, ids := range addressed.offer.Jobs {
			offered += len(ids)
		}
	}
	if offered > 0 {
		l.tracer.Assigned(l.fence.Term, l.lastStep, offered, len(assigned), err)
	}
	if err != nil {
		return err
	}
	l.metrics.AssignmentOffers.Add(float64(offered))
	return nil
}
