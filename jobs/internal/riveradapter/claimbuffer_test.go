package riveradapter

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/riverqueue/river/rivertype"
	"pgregory.net/rapid"

	"github.com/forge-scheduler/forge/internal/wire"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func offerOf(term, seq int64, queue string, ids ...int64) wire.Offer {
	return wire.Offer{Term: term, Seq: seq, Jobs: map[string][]int64{queue: ids}}
}

func wantCredit(t *testing.T, b *claimBuffer, want wire.Credit, wantRequested bool) {
	t.Helper()
	got, requested := b.credit()
	if diff := cmp.Diff(want, got); diff != "" || requested != wantRequested {
		t.Errorf("requested %t, want %t; credit (-want +got):\n%s", requested, wantRequested, diff)
	}
}

func TestClaimBufferCountsSlots(t *testing.T) {
	t.Parallel()
	b := newClaimBuffer(3, map[string]int{"a": 2, "b": 3}, nil, nil)
	if dropped := b.add(offerOf(1, 1, "a", 30, 10, 20), noon); !b.isWanted() || dropped != 0 {
		t.Errorf("%d dropped, or nothing to claim", dropped)
	}
	wantCredit(t, b, wire.Credit{Term: 1, Seen: 1, Slots: 0, Free: map[string]int{"a": 0, "b": 0}}, false)
	if batch := b.take("a", 2); !slices.Equal(batch.free, []int64{10, 30}) || batch.term != 1 {
		t.Errorf("batch %+v", batch)
	}
	b.claimed("a", []int64{10, 30}, rowsOf([]int64{10})) // another node has claimed one
	wantCredit(t, b, wire.Credit{Term: 1, Seen: 1, Slots: 1, Free: map[string]int{"a": 0, "b": 1}}, false)
	if b.finish("a", 10); !b.isWanted() { // job 20 still waits
		t.Error("the end of a job causes no claim")
	}
	wantCredit(t, b, wire.Credit{Term: 1, Seen: 1, Slots: 2, Free: map[string]int{"a": 1, "b": 2}}, false)
}

// Claims without a reply take no slots after the node has stopped working their queue.
func TestRemovedQueueTakesNoSlots(t *testing.T) {
	t.Parallel()
	b := newClaimBuffer(3, map[string]int{"a": 3, "b": 3}, nil, nil)
	b.add(offerOf(1, 1, "b", 10, 20), noon)
	before, during := b.take("b", 1).free, b.take("b", 1).free
	b.markUncertain("b", before, noon)
	b.resize(3, map[string]int{"a": 3}, nil)
	b.markUncertain("b", during, noon)
	wantCredit(t, b, wire.Credit{Term: 1, Seen: 1, Slots: 3, Free: map[string]int{"a": 3}}, false)
}

func TestReportIsUrgentWhenManySlotsBecomeFree(t *testing.T) {
	t.Parallel()
	const slots = 8
	b := newClaimBuffer(slots, map[string]int{"a": slots}, nil, nil)
	b.add(offerOf(1, 1, "a", 1, 2, 3, 4, 5, 6, 7, 8), noon)
	batch := b.take("a", slots).free
	b.claimed("a", batch, rowsOf(batch))
	b.credit()
	isUrgent := func() bool {
		select {
		case <-b.urgent:
			return true
		default:
			return false
		}
	}
	for n, want := range []bool{false, true, true} {
		b.finish("a", 0)
		if got := isUrgent(); got != want {
			t.Errorf("%d slots free: urgent %t, want %t", n+1, got, want)
		}
	}
	b.finish("a", 0)
	b.credit()
	if isUrgent() {
		t.Error("urgent just after a report")
	}
	for range 3 {
		b.finish("a", 0)
	}
	b.credit()
	if b.finish("a", 0); !isUrgent() {
		t.Error("not urgent after the last job")
	}
}

func TestClaimBufferDropsOffersOfOlderTerms(t *testing.T) {
	t.Parallel()
	b := newClaimBuffer(9, map[string]int{"a": 9}, nil, nil)
	b.add(offerOf(2, 7, "a", 1, 2), noon)
	if dropped := b.add(offerOf(1, 8, "a", 3), noon); dropped != 1 {
		t.Errorf("%d offers of the older term dropped, want 1", dropped)
	}
	if dropped := b.add(offerOf(3, 1, "a", 4), noon); dropped != 2 {
		t.Errorf("%d buffered offers of the older term dropped, want 2", dropped)
	}
	if batch := b.take("a", 9); !slices.Equal(batch.free, []int64{4}) || batch.term != 3 {
		t.Errorf("batch %+v", batch)
	}
}

// A claim of limited jobs is of one version of the limits: the newest of the term.
func TestClaimBufferDropsOffersOfOlderLimits(t *testing.T) {
	t.Parallel()
	b := newClaimBuffer(9, map[string]int{"a": 9}, nil, nil)
	of := func(term, seq, version int64, ids ...int64) wire.Offer {
		offer := offerOf(term, seq, "a", ids...)
		offer.Limited, offer.LimitVersion = true, version
		return offer
	}
	counted := of(1, 1, 7, 2, 1)
	counted.Rows, counted.Locks = map[string][]int64{"a": {20, 10}}, map[string][][]int64{"a": {{200, 201}, {100}}}
	again := of(1, 4, 7, 4)
	again.Rows = map[string][]int64{"a": {40}} // the job has changed
	for i, step := range []struct {
		offer wire.Offer
		want  int
	}{{counted, 0}, {offerOf(1, 2, "a", 3), 0}, {of(1, 3, 7, 4), 0}, {again, 0}, {of(1, 5, 6, 5), 1}} {
		if dropped := b.add(step.offer, noon); dropped != step.want {
			t.Errorf("offer %d: %d dropped, want %d", i, dropped, step.want)
		}
	}
	batch := b.take("a", 9)
	want := claimBatch{free: []int64{3}, limited: []bufferedOffer{{id: 4, at: noon, limited: true, row: 40}}, term: 1, limitVersion: 7, counted: []bufferedOffer{
		{id: 1, at: noon, limited: true, row: 10, locks: []int64{100}},
		{id: 2, at: noon, limited: true, row: 20, locks: []int64{200, 201}},
	}}
	if diff := cmp.Diff(want, batch, cmp.AllowUnexported(claimBatch{}, bufferedOffer{})); diff != "" {
		t.Errorf("the batch (-want +got):\n%s", diff)
	}
	b.claimed("a", numbers(1, 4), nil)
	b.add(of(1, 6, 7, 6), noon)
	b.add(offerOf(1, 7, "a", 7), noon)
	if dropped := b.add(of(1, 8, 8, 8), noon); dropped != 1 {
		t.Errorf("%d offers dropped when the limits changed, want 1", dropped)
	}
	if dropped := b.add(of(2, 1, 3, 9), noon); dropped != 2 {
		t.Errorf("%d offers dropped when the term changed, want 2", dropped)
	}
	if batch := b.take("a", 9); len(batch.limited) != 1 || batch.limited[0].id != 9 || batch.limitVersion != 3 {
		t.Errorf("in the next term, the batch is %+v", batch)
	}
}

func numbers(first, last int64) (ids []int64) {
	for id := first; id <= last; id++ {
		ids = append(ids, id)
	}
	return ids
}

func TestClaimBufferIgnoresDuplicateOffers(t *testing.T) {
	t.Parallel()
	b := newClaimBuffer(9, map[string]int{"a": 9}, nil, nil)
	b.add(offerOf(1, 1, "a", 1, 2), noon)
	b.add(offerOf(1, 2, "a", 2, 3), noon)
	if dropped := b.add(offerOf(1, 3, "elsewhere", 4), noon); dropped != 1 {
		t.Errorf("%d of an unknown queue dropped, want 1", dropped)
	}
	limited := offerOf(1, 4, "a", 9, 7)
	limited.Limited = true
	b.add(limited, noon)
	if batch := b.take("a", 9); !slices.Equal(batch.free, []int64{1, 2, 3}) || len(batch.limited) != 2 || batch.limited[0].id != 7 {
		t.Errorf("batch %+v", batch)
	}
}

func TestEmptyOfferRequestsReport(t *testing.T) {
	t.Parallel()
	b := newClaimBuffer(1, map[string]int{"a": 1}, nil, nil)
	b.add(wire.Offer{Term: 4, Seq: 2}, noon)
	wantCredit(t, b, wire.Credit{Term: 4, Seen: 2, Slots: 1, Free: map[string]int{"a": 1}}, true)
	wantCredit(t, b, wire.Credit{Term: 4, Seen: 2, Slots: 1, Free: map[string]int{"a": 1}}, false)
}

func TestUnclaimedOffersExpire(t *testing.T) {
	t.Parallel()
	b := newClaimBuffer(2, map[string]int{"a": 2}, nil, nil)
	b.add(offerOf(1, 1, "a", 1), noon)
	b.add(offerOf(1, 2, "a", 2), noon.Add(offerTimeout))
	b.isWanted()
	if dropped := b.expire(noon.Add(offerTimeout + time.Millisecond)); dropped != 1 || !b.isWanted() {
		t.Errorf("dropped %d, or nothing to claim", dropped)
	}
	wantCredit(t, b, wire.Credit{Term: 1, Seen: 2, Slots: 1, Free: map[string]int{"a": 1}}, false)
}

func TestDrainingClaimBufferDropsOffers(t *testing.T) {
	t.Parallel()
	b := newClaimBuffer(2, map[string]int{"a": 2}, nil, nil)
	b.add(offerOf(1, 1, "a", 1), noon)
	if dropped := b.drain(); dropped != 1 {
		t.Errorf("dropped %d, want 1", dropped)
	}
	b.add(offerOf(1, 2, "a", 2), noon)
	if batch := b.take("a", 2); len(batch.free) != 0 {
		t.Errorf("batch %+v", batch)
	}
	wantCredit(t, b, wire.Credit{Term: 1, Seen: 2, Slots: 0, Free: map[string]int{"a": 0}}, true)
}

// The buffer never reports more credit than there are free slots.
func TestCreditNeverExceedsFreeSlots(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 6).Draw(t, "slots")
		b := newClaimBuffer(slots, map[string]int{"a": rapid.IntRange(1, 6).Draw(t, "a"), "b": rapid.IntRange(1, 6).Draw(t, "b")}, nil, nil)
		running := map[string][]int64{}
		next := int64(0)
		for range 40 {
			queue := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				next++
				b.add(offerOf(1, next, queue, next), noon)
			case 1:
				ids := b.take(queue, rapid.IntRange(0, 4).Draw(t, "limit")).free
				got := rapid.IntRange(0, len(ids)).Draw(t, "got")
				b.claimed(queue, ids, rowsOf(ids[:got]))
				running[queue] = append(running[queue], ids[:got]...)
			case 2:
				ids := b.take(queue, 1).free
				b.markUncertain(queue, ids, noon)
			case 3:
				ids := b.takeUncertain(queue, 1, noon)
				b.claimed(queue, ids, rowsOf(ids))
				running[queue] = append(running[queue], ids...)
			case 4:
				if len(running[queue]) > 0 {
					b.finish(queue, running[queue][0])
					b.acknowledged(running[queue][:1])
					running[queue] = running[queue][1:]
				}
			}
			credit, _ := b.credit()
			if total := count(running); b.running() != total || credit.Slots > max(0, slots-total) {
				t.Fatalf("%d run (counted %d) of %d, credit %+v", total, b.running(), slots, credit)
			}
			for queue, free := range credit.Free {
				if free > max(0, b.queues[queue]-len(running[queue])) || free > credit.Slots {
					t.Fatalf("%v run, credit %+v", running, credit)
				}
			}
		}
	})
}

func TestRoomLimitsCredit(t *testing.T) {
	t.Parallel()
	room := 3
	b := newClaimBuffer(9, map[string]int{"a": 9, "b": 2}, nil, func() int { return room })
	if credit, _ := b.credit(); credit.Slots != 3 || credit.Free["a"] != 3 || credit.Free["b"] != 2 {
		t.Errorf("with room for 3: %+v", credit)
	}
	b.add(wire.Offer{Seq: 1, Jobs: map[string][]int64{"a": {1, 2}}}, time.Now())
	if credit, _ := b.credit(); credit.Slots != 1 {
		t.Errorf("with room for 3 and 2 offers: %+v", credit)
	}
	for len(b.changed) > 0 {
		<-b.changed
	}
	b.moreRoom()
	if len(b.changed) != 1 {
		t.Error("more room requests no report")
	}
	<-b.changed
	room = 100
	if credit, _ := b.credit(); credit.Slots != 7 {
		t.Errorf("with room enough: %+v", credit)
	}
	if b.moreRoom(); len(b.changed) != 0 {
		t.Error("more room requests a report without a change")
	}
}

// isWanted reports whether an exchange was requested since the last call.
func (b *claimBuffer) isWanted() bool {
	select {
	case <-b.wanted:
		return true
	default:
		return false
	}
}

// Offers of a paused queue wait. If they expire, the next claim asks the database.
func TestOffersOfPausedQueueWait(t *testing.T) {
	t.Parallel()
	b := newClaimBuffer(9, map[string]int{"a": 9, "b": 9}, nil, nil)
	b.pause("a", true)
	b.add(offerOf(1, 1, "a", 1), noon)
	if batch := b.take("a", 9); len(batch.free) != 0 {
		t.Errorf("batch %v of a paused queue", batch.free)
	}
	b.isWanted()
	if b.pause("*", false); !b.isWanted() {
		t.Error("resuming all queues causes no claim")
	}
	if batch := b.take("a", 9); !slices.Equal(batch.free, []int64{1}) {
		t.Errorf("batch %v after the queue was resumed", batch.free)
	}
	b.pause("a", true)
	b.add(offerOf(1, 2, "a", 2), noon)
	b.expire(noon.Add(offerTimeout + time.Millisecond))
	b.add(offerOf(1, 3, "a", 2), noon)
	if batch := b.take("a", 9); !slices.Equal(batch.free, []int64{2}) {
		t.Errorf("batch %v after an offer of the paused queue expired", batch.free)
	}
}

// A cancellation that arrives during the claim is kept until the result.
func TestCancellationDuringClaimIsKept(t *testing.T) {
	t.Parallel()
	b := newClaimBuffer(9, map[string]int{"a": 9}, nil, nil)
	b.cancel(1)
	b.add(offerOf(1, 1, "a", 1, 2), noon)
	ids := b.take("a", 9).free
	b.cancel(2)
	b.claimed("a", ids, rowsOf(ids))
	if b.isCancelled(1) || !b.isCancelled(2) {
		t.Errorf("cancelled: %t before the offer, %t during the claim", b.isCancelled(1), b.isCancelled(2))
	}
	b.finish("a", 2)
	b.acknowledged([]int64{2})
	if b.isCancelled(2) {
		t.Error("still cancelled after the result")
	}
}

func rowsOf(ids []int64) []*rivertype.JobRow {
	rows := make([]*rivertype.JobRow, len(ids))
	for i, id := range ids {
		rows[i] = &rivertype.JobRow{ID: id}
	}
	return rows
}

// A running job is not claimed again. An ended job is claimed again only after its result
// was acknowledged.
func TestClaimBufferAllowsOneAttemptPerJob(t *testing.T) {
	t.Parallel()
	b := newClaimBuffer(9, map[string]int{"a": 9}, nil, nil)
	b.add(offerOf(1, 1, "a", 1), noon)
	b.claimed("a", b.take("a", 9).free, rowsOf([]int64{1}))
	if dropped := b.add(offerOf(1, 2, "a", 1), noon); dropped != 1 {
		t.Error("an offer of a job that runs here was kept")
	}
	if b.addUncertain("a", 1) {
		t.Error("a job that runs here was added for a look-up")
	}
	b.finish("a", 1)
	b.add(offerOf(1, 3, "a", 1), noon)
	if batch := b.take("a", 9); len(batch.free) != 0 {
		t.Errorf("batch %v before its result was acknowledged", batch.free)
	}
	if _, left := b.lastProgress(); left != 1 {
		t.Errorf("%d results are not acknowledged, want 1", left)
	}
	b.isWanted()
	if b.acknowledged([]int64{1}); !b.isWanted() {
		t.Error("the acknowledgement causes no claim")
	}
	if batch := b.take("a", 9); !slices.Equal(batch.free, []int64{1}) {
		t.Errorf("batch %v afterwards", batch.free)
	}
}

// A claim takes no more jobs than the node and the queue have free slots.
func TestTakeStopsAtFreeSlots(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ slots, queue int }{"of the node": {2, 9}, "of the queue": {9, 2}} {
		b := newClaimBuffer(test.slots, map[string]int{"default": test.queue}, nil, nil)
		b.add(offerOf(1, 1, "default", 1, 2, 3, 4), time.Now())
		if got := b.take("default", 100).free; len(got) != 2 {
			t.Errorf("%s: took %v, want two", name, got)
		}
		if got := b.take("default", 100).free; len(got) != 0 {
			t.Errorf("%s: took %v without a free slot", name, got)
		}
	}
}
