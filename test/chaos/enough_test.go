package chaos

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/chaos/checker"
)

// mayRefuse says whether what is done to the cluster explains the exit code of a call
// that enqueues: the connection broke, there was none, or the file was broken. A call
// that the end of the run has killed has no code.
func (r *run) mayRefuse(code int) bool {
	return code == killed || code == failed || code == unreachable || code == invalid && r.wasBroken()
}

// demandEnough looks whether the run has done and seen what a verdict on it needs.
func (r *run) demandEnough(lasted time.Duration, h *checker.History) {
	r.Helper()
	fired := 0
	for _, entry := range h.Entries {
		if entry.Verdict == checker.Fired {
			fired++
		}
	}
	done := deeds{r.faults(), len(h.Acked), fired, terms(h), checker.SeenGaps(h), checker.FullWindows(h), len(h.Turns)}
	if r.blind {
		done.gaps = math.MaxInt
	}
	for _, text := range tooLittle(lasted, done) {
		r.Error(text)
	}
}

// deeds are what was done to a cluster, and what it did.
type deeds struct{ faults, acked, fired, terms, gaps, full, turns int }

// tooLittle lists what there was too little of for so long a run. A good run has two
// to five times as much.
func tooLittle(lasted time.Duration, d deeds) []string {
	var missing []string
	least := func(what string, count int, each time.Duration) {
		if want := int(lasted / each); count < want {
			missing = append(missing, fmt.Sprintf("%s: %d; want %d or more in %s", what, count, want, lasted))
		}
	}
	least("faults", d.faults, 2*time.Second)
	least("acknowledged jobs", d.acked, 6*time.Second)
	least("ticks that fired", d.fired, 2*time.Second)
	least("terms of the scheduler", d.terms, 10*time.Second)
	least("gaps between terms that were seen", d.gaps, 20*time.Second)
	least("starts that used up a rate", d.full, 20*time.Second)
	least("backlogs that took turns with others", d.turns, 20*time.Second)
	return missing
}

func TestRunWithTooLittleActivityFails(t *testing.T) {
	t.Parallel()
	const lasted = time.Minute
	enough := deeds{faults: 30, acked: 10, fired: 30, terms: 6, gaps: 3, full: 3, turns: 3}
	if missing := tooLittle(lasted, enough); len(missing) != 0 {
		t.Errorf("%v", missing)
	}
	for _, d := range []deeds{
		{29, 10, 30, 6, 3, 3, 3},
		{30, 9, 30, 6, 3, 3, 3},
		{30, 10, 29, 6, 3, 3, 3},
		{30, 10, 30, 5, 3, 3, 3},
		{30, 10, 30, 6, 2, 3, 3},
		{30, 10, 30, 6, 3, 2, 3},
		{30, 10, 30, 6, 3, 3, 2},
	} {
		if missing := tooLittle(lasted, d); len(missing) != 1 {
			t.Errorf("%+v: %v", d, missing)
		}
	}
	r := &run{T: t}
	for code, may := range map[int]bool{killed: true, failed: true, unreachable: true, invalid: false, 2: false, 4: false, 6: false} {
		if r.mayRefuse(code) != may {
			t.Errorf("exit code %d: may refuse: %t", code, !may)
		}
	}
}
