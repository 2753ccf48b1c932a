package riveradapter

import "github.com/forge-scheduler/forge/internal/wire"

// isUrgent reports whether the next report is urgent: a quarter of the slots has become
// free since the last report, or all slots are free.
func (b *claimBuffer) isUrgent() bool {
	free := b.free()
	return free >= b.reported+max(1, b.slots/4) || free == b.slots
}

// free returns the number of slots without a job, an offer or an uncertain claim.
func (b *claimBuffer) free() int {
	return b.slots - sum(b.active) - count(b.offers) - count(b.uncertain)
}

// requestReport causes a report even if nothing has changed.
func (b *claimBuffer) requestReport() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reportRequested = true
	signal(b.changed)
}

// credit returns what this node can still take, and whether a report was requested.
func (b *claimBuffer) credit() (credit wire.Credit, requested bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	requested, b.reportRequested = b.reportRequested, false
	credit = wire.Credit{Term: b.term, Seen: b.seen, Free: make(map[string]int, len(b.queues))}
	b.reported = b.free()
	select {
	case <-b.urgent: // this report includes the change
	default:
	}
	if !b.draining {
		credit.Slots = max(0, b.reported)
	}
	b.roomLimited = false
	if b.room != nil {
		if room := max(0, b.room()-count(b.offers)); room < credit.Slots {
			credit.Slots, b.roomLimited = room, true
		}
	}
	used := make(map[string]int, len(b.queues))
	for queue := range b.queues {
		used[queue] = b.active[queue] + len(b.offers[queue]) + len(b.uncertain[queue])
	}
	for queue, limit := range b.queues {
		credit.Free[queue] = max(0, min(limit-used[queue], credit.Slots-b.reservedFor(queue, used)))
	}
	for queue, slots := range b.reserve {
		if unused := slots - used[queue]; unused > 0 {
			if credit.Reserved == nil {
				credit.Reserved = map[string]int{}
			}
			credit.Reserved[queue] = unused
		}
	}
	return credit, requested
}

// reservedFor returns how many slots a queue must leave to others, if these use so many.
func (b *claimBuffer) reservedFor(queue string, used map[string]int) (slots int) {
	for other, reserve := range b.reserve {
		if other != queue {
			slots += max(0, reserve-used[other])
		}
	}
	return slots
}

// moreRoom causes a report if room limited the last one.
func (b *claimBuffer) moreRoom() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.roomLimited {
		signal(b.changed)
	}
}
