package pilot

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

func wantCredit(t *testing.T, b *box, want wire.Credit, wantAsked bool) {
	t.Helper()
	got, asked := b.credit()
	if diff := cmp.Diff(want, got); diff != "" || asked != wantAsked {
		t.Errorf("asked %t, want %t; credit (-want +got):\n%s", asked, wantAsked, diff)
	}
}

func TestBoxCountsWhatIsHeldClaimedAndFinished(t *testing.T) {
	t.Parallel()
	b := newBox(3, map[string]int{"a": 2, "b": 3}, nil)
	wake, dropped := b.put(offerOf(1, 1, "a", 30, 10, 20), noon)
	if !slices.Equal(wake, []string{"a"}) || dropped != 0 {
		t.Errorf("got %v, %d", wake, dropped)
	}
	wantCredit(t, b, wire.Credit{Term: 1, Seen: 1, Slots: 0, Free: map[string]int{"a": 0, "b": 0}}, false)
	if took := b.take("a", 2); !slices.Equal(took.free, []int64{10, 30}) || took.term != 1 {
		t.Errorf("took %+v", took)
	}
	b.claimed("a", []int64{10, 30}, rowsOf([]int64{10})) // one was somebody else's
	wantCredit(t, b, wire.Credit{Term: 1, Seen: 1, Slots: 1, Free: map[string]int{"a": 0, "b": 1}}, false)
	if wake := b.finish("a", 10); !slices.Equal(wake, []string{"a"}) { // 20 still waits
		t.Errorf("finish wakes %v", wake)
	}
	wantCredit(t, b, wire.Credit{Term: 1, Seen: 1, Slots: 2, Free: map[string]int{"a": 1, "b": 2}}, false)
}

func TestBoxPressesWhenMuchCameFree(t *testing.T) {
	t.Parallel()
	const slots = 8
	b := newBox(slots, map[string]int{"a": slots}, nil)
	b.put(offerOf(1, 1, "a", 1, 2, 3, 4, 5, 6, 7, 8), noon)
	took := b.take("a", slots).free
	b.claimed("a", took, rowsOf(took))
	b.credit()
	pressed := func() bool {
		select {
		case <-b.pressing:
			return true
		default:
			return false
		}
	}
	for n, want := range []bool{false, true, true} {
		b.finish("a", 0)
		if got := pressed(); got != want {
			t.Errorf("%d came free: pressing %t, want %t", n+1, got, want)
		}
	}
	b.finish("a", 0)
	b.credit()
	if pressed() {
		t.Error("a report was sent since")
	}
	for range 3 {
		b.finish("a", 0)
	}
	b.credit()
	if b.finish("a", 0); !pressed() {
		t.Error("the last job did not press")
	}
}

func TestBoxKeepsToTheNewestTerm(t *testing.T) {
	t.Parallel()
	b := newBox(9, map[string]int{"a": 9}, nil)
	b.put(offerOf(2, 7, "a", 1, 2), noon)
	if _, dropped := b.put(offerOf(1, 8, "a", 3), noon); dropped != 1 {
		t.Errorf("%d of the older term dropped, want 1", dropped)
	}
	if _, dropped := b.put(offerOf(3, 1, "a", 4), noon); dropped != 2 {
		t.Errorf("%d held of the older term dropped, want 2", dropped)
	}
	if took := b.take("a", 9); !slices.Equal(took.free, []int64{4}) || took.term != 3 {
		t.Errorf("took %+v", took)
	}
}

func TestBoxTakesAnOfferOnce(t *testing.T) {
	t.Parallel()
	b := newBox(9, map[string]int{"a": 9}, nil)
	b.put(offerOf(1, 1, "a", 1, 2), noon)
	b.put(offerOf(1, 2, "a", 2, 3), noon)
	if _, dropped := b.put(offerOf(1, 3, "elsewhere", 4), noon); dropped != 1 {
		t.Errorf("%d of an unknown queue dropped, want 1", dropped)
	}
	limited := offerOf(1, 4, "a", 9, 7)
	limited.Limited = true
	b.put(limited, noon)
	if took := b.take("a", 9); !slices.Equal(took.free, []int64{1, 2, 3}) || !slices.Equal(took.limited, []int64{7, 9}) {
		t.Errorf("took %+v", took)
	}
}

func TestBoxAnswersAnEmptyOffer(t *testing.T) {
	t.Parallel()
	b := newBox(1, map[string]int{"a": 1}, nil)
	b.put(wire.Offer{Term: 4, Seq: 2}, noon)
	wantCredit(t, b, wire.Credit{Term: 4, Seen: 2, Slots: 1, Free: map[string]int{"a": 1}}, true)
	wantCredit(t, b, wire.Credit{Term: 4, Seen: 2, Slots: 1, Free: map[string]int{"a": 1}}, false)
}

func TestBoxDropsWhatNobodyClaims(t *testing.T) {
	t.Parallel()
	b := newBox(2, map[string]int{"a": 2}, nil)
	b.put(offerOf(1, 1, "a", 1), noon)
	b.put(offerOf(1, 2, "a", 2), noon.Add(heldFor))
	wake, dropped := b.expire(noon.Add(heldFor + time.Millisecond))
	if dropped != 1 || !slices.Equal(wake, []string{"a"}) {
		t.Errorf("dropped %d, wakes %v", dropped, wake)
	}
	wantCredit(t, b, wire.Credit{Term: 1, Seen: 2, Slots: 1, Free: map[string]int{"a": 1}}, false)
}

func TestDrainingBoxGivesNothing(t *testing.T) {
	t.Parallel()
	b := newBox(2, map[string]int{"a": 2}, nil)
	b.put(offerOf(1, 1, "a", 1), noon)
	if dropped := b.drain(); dropped != 1 {
		t.Errorf("dropped %d, want 1", dropped)
	}
	b.put(offerOf(1, 2, "a", 2), noon)
	if took := b.take("a", 2); len(took.free) != 0 {
		t.Errorf("took %+v", took)
	}
	wantCredit(t, b, wire.Credit{Term: 1, Seen: 2, Slots: 0, Free: map[string]int{"a": 0}}, true)
}

// Whatever happens, a box never promises more than there is.
func TestBoxNeverOverbooks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 6).Draw(t, "slots")
		b := newBox(slots, map[string]int{"a": rapid.IntRange(1, 6).Draw(t, "a"), "b": rapid.IntRange(1, 6).Draw(t, "b")}, nil)
		running := map[string][]int64{}
		next := int64(0)
		for range 40 {
			queue := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				next++
				b.put(offerOf(1, next, queue, next), noon)
			case 1:
				ids := b.take(queue, rapid.IntRange(0, 4).Draw(t, "limit")).free
				got := rapid.IntRange(0, len(ids)).Draw(t, "got")
				b.claimed(queue, ids, rowsOf(ids[:got]))
				running[queue] = append(running[queue], ids[:got]...)
			case 2:
				ids := b.take(queue, 1).free
				b.doubt(queue, ids, noon)
			case 3:
				ids := b.takeDoubtful(queue, 1, noon)
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

func TestRoomBoundsTheCredit(t *testing.T) {
	t.Parallel()
	room := 3
	b := newBox(9, map[string]int{"a": 9, "b": 2}, func() int { return room })
	if credit, _ := b.credit(); credit.Slots != 3 || credit.Free["a"] != 3 || credit.Free["b"] != 2 {
		t.Errorf("with room for 3: %+v", credit)
	}
	b.put(wire.Offer{Seq: 1, Jobs: map[string][]int64{"a": {1, 2}}}, time.Now())
	if credit, _ := b.credit(); credit.Slots != 1 {
		t.Errorf("with room for 3 and 2 that are held: %+v", credit)
	}
	for len(b.changed) > 0 {
		<-b.changed
	}
	b.moreRoom()
	if len(b.changed) != 1 {
		t.Error("more room asks for no report")
	}
	<-b.changed
	room = 100
	if credit, _ := b.credit(); credit.Slots != 7 {
		t.Errorf("with room enough: %+v", credit)
	}
	if b.moreRoom(); len(b.changed) != 0 {
		t.Error("more room asks for a report that says nothing new")
	}
}

func rowsOf(ids []int64) []*rivertype.JobRow {
	rows := make([]*rivertype.JobRow, len(ids))
	for i, id := range ids {
		rows[i] = &rivertype.JobRow{ID: id}
	}
	return rows
}

// A job that runs here is not claimed again; one whose result is not acknowledged only
// after that.
func TestBoxHasOneAttemptOfAJob(t *testing.T) {
	t.Parallel()
	b := newBox(9, map[string]int{"a": 9}, nil)
	b.put(offerOf(1, 1, "a", 1), noon)
	b.claimed("a", b.take("a", 9).free, rowsOf([]int64{1}))
	if _, dropped := b.put(offerOf(1, 2, "a", 1), noon); dropped != 1 {
		t.Error("an offer of a job that runs here was kept")
	}
	if b.suspect("a", 1) {
		t.Error("a job that runs here is to be looked up")
	}
	b.finish("a", 1)
	b.put(offerOf(1, 3, "a", 1), noon)
	if took := b.take("a", 9); len(took.free) != 0 {
		t.Errorf("took %v before its result was acknowledged", took.free)
	}
	if !b.idleSince().IsZero() {
		t.Error("idle with a result that is not acknowledged")
	}
	if wake := b.acknowledged([]int64{1}); !slices.Equal(wake, []string{"a"}) {
		t.Errorf("the acknowledgement wakes %v", wake)
	}
	if took := b.take("a", 9); !slices.Equal(took.free, []int64{1}) {
		t.Errorf("took %v afterwards", took.free)
	}
}
