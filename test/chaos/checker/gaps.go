package checker

import (
	"cmp"
	"slices"
	"time"
)

const (
	// gapTolerance is how far a recorded gap may be from what was seen.
	gapTolerance = 50 * time.Millisecond
	// noticeTolerance is how much shorter a gap after a crash may be. A deputy notices the
	// end of the leader's session, and a busy machine wakes the deputy late.
	noticeTolerance = 150 * time.Millisecond
)

// Tenure is one term as forge's history has it.
type Tenure struct {
	Role string
	Term int64
	// Gap is the time without a leader before it; negative: none is recorded.
	Gap time.Duration
	// GivenUp says that the leader ended it itself, by what the history says.
	GivenUp bool
}

// Sighting is what a prober outside forge saw of one term: that its leader held the
// role's lock, and that it had renewed its lease.
type Sighting struct {
	Role string
	Term int64
	// Held is when it was last seen to hold the lock, Gone when it was first seen not
	// to any more; zero: that was not seen.
	Held, Gone time.Time
	Renewed    time.Time // the last renewal that was seen
}

// term is a key of a tenure.
type term struct {
	role string
	term int64
}

// handOver is a term that followed another, with what is known of the time between.
type handOver struct {
	Tenure

	exact       bool          // the journal has the end of the term before
	least, most time.Duration // as it was seen
}

// SeenGaps counts the terms whose gap was seen as exactly as it is judged.
func SeenGaps(h *History) int {
	seen := 0
	for _, o := range handOvers(h) {
		if o.exact || o.most-o.least <= gapTolerance {
			seen++
		}
	}
	return seen
}

// checkGaps sets the gap that forge recorded before each term against what was seen.
func (c *check) checkGaps() {
	for _, o := range handOvers(c.History) {
		shorter := noticeTolerance
		if o.exact {
			shorter = gapTolerance
		}
		if o.Gap < o.least-shorter || o.Gap > o.most+gapTolerance {
			c.find(WrongGap, "", time.Time{}, "%s: before term %d the history has a gap of %s; it was seen to be %s to %s", o.Role, o.Term, o.Gap, o.least, o.most)
		}
	}
}

// handOvers lists the terms of whose beginning enough was seen. A term begins where the
// journal has it. Where the leader before it gave the role up the journal has that, too.
// Where it did not it was seen to hold the lock up to some time, and not to hold it from
// some time on; what it did after its last renewal nobody knows, so a gap that counts
// from there is as good, also where somebody else took its role away. Who deletes a role's row ends its term.
func handOvers(h *History) []handOver {
	recorded, seen := map[term]Tenure{}, map[term]Sighting{}
	for _, t := range h.Tenures {
		recorded[term{t.Role, t.Term}] = t
	}
	for _, s := range h.Sightings {
		seen[term{s.Role, s.Term}] = s
	}
	var found []handOver
	last := map[string]Lead{} // the last change of each role
	for _, lead := range slices.SortedFunc(slices.Values(h.Leads), func(a, b Lead) int { return cmp.Compare(a.Seq, b.Seq) }) {
		before := last[lead.Role]
		if lead.Node == "" && before.Node == "" && before.Term != 0 {
			continue // a row that was made anew
		}
		last[lead.Role] = lead
		tenure, ok := recorded[term{lead.Role, lead.Term}]
		if !ok || tenure.Gap < 0 || lead.Node == "" || before.Term == 0 || lead.Term == before.Term {
			continue
		}
		exact := before.Node == "" && (before.Deleted || recorded[term{lead.Role, before.Term}].GivenUp)
		sighting, sighted := seen[term{lead.Role, before.Term}]
		if !exact && !sighted {
			continue
		}
		least, most := gapBounds(before, lead, sighting, exact)
		found = append(found, handOver{tenure, exact, least, most})
	}
	return found
}

// gapBounds are the shortest and the longest time for which nobody can have led. exact
// says that the journal has the end of the term before.
func gapBounds(before, lead Lead, seen Sighting, exact bool) (least, most time.Duration) {
	if exact {
		return max(0, lead.Began.Sub(before.At)), lead.At.Sub(before.Began)
	}
	first, last := seen.Held, seen.Gone
	if first.IsZero() || seen.Renewed.Before(first) {
		first = seen.Renewed
	}
	if before.Node != "" && first.Before(before.At) {
		first = before.At // it has led for a moment at least
	}
	if before.Node == "" && (last.IsZero() || before.At.Before(last)) {
		last = before.At // somebody else has taken it away
	}
	if last.IsZero() || last.After(lead.At) {
		last = lead.At
	}
	return max(0, lead.At.Sub(last)), max(0, lead.At.Sub(first))
}
