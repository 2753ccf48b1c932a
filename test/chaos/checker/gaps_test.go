package checker

import (
	"slices"
	"testing"
	"time"
)

// resigned is a leader that gives the role up after two seconds; the next begins 20 ms
// later.
func resigned() *History {
	return &History{
		Leads: []Lead{
			{Seq: 1, At: second(0), Role: scheduler, Term: 1, Node: "a", Began: second(0)},
			{Seq: 2, At: second(2), Role: scheduler, Term: 1, Began: second(2)},
			{Seq: 3, At: second(2).Add(20 * time.Millisecond), Role: scheduler, Term: 2, Node: "b", Began: second(2).Add(20 * time.Millisecond)},
		},
		Tenures: []Tenure{{scheduler, 1, -1, true}, {scheduler, 2, 20 * time.Millisecond, false}},
	}
}

// crashed is a leader whose lock was last seen after two seconds; the next begins
// 300 ms later. Its last renewal was half a second before.
func crashed() *History {
	h := resigned()
	h.Tenures[0].GivenUp = false
	h.Leads = slices.Delete(h.Leads, 1, 2)
	h.Leads[1].At = second(2).Add(300 * time.Millisecond)
	h.Sightings = []Sighting{{
		Role: scheduler, Term: 1, Held: second(2), Gone: second(2).Add(5 * time.Millisecond), Renewed: second(2).Add(-500 * time.Millisecond),
	}}
	h.Tenures[1].Gap = 297 * time.Millisecond
	return h
}

// evicted is a leader whose role was taken away after two seconds, 800 ms after its last
// renewal.
func evicted() *History {
	h := resigned()
	h.Tenures[0].GivenUp = false
	h.Sightings = []Sighting{{
		Role: scheduler, Term: 1, Held: second(2).Add(-time.Millisecond), Gone: second(2).Add(4 * time.Millisecond), Renewed: second(2).Add(-800 * time.Millisecond),
	}}
	return h
}

func TestGaps(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		begin func() *History
		spoil func(*History)
		wrong bool
	}{
		"resigned":                       {resigned, func(*History) {}, false},
		"resigned, 40 ms more":           {resigned, func(h *History) { h.Tenures[1].Gap = 60 * time.Millisecond }, false},
		"resigned, as from the term":     {resigned, func(h *History) { h.Tenures[1].Gap = 2020 * time.Millisecond }, true},
		"resigned, 60 ms more":           {resigned, func(h *History) { h.Tenures[1].Gap = 80 * time.Millisecond }, true},
		"a gap that was not recorded":    {resigned, func(h *History) { h.Leads[2].At, h.Leads[2].Began = second(3), second(3) }, true},
		"a trigger that came late":       {resigned, func(h *History) { h.Leads[2].At = second(3) }, false},
		"an end that was drawn early":    {resigned, func(h *History) { h.Leads[1].Began, h.Tenures[1].Gap = second(1), time.Second }, false},
		"crashed":                        {crashed, func(*History) {}, false},
		"crashed, from the last renewal": {crashed, func(h *History) { h.Tenures[1].Gap = 800 * time.Millisecond }, false},
		"evicted, from the last renewal": {evicted, func(h *History) { h.Tenures[1].Gap = 820 * time.Millisecond }, false},
		"evicted, from the eviction":     {evicted, func(*History) {}, false},
		"evicted, from the term before":  {evicted, func(h *History) { h.Tenures[1].Gap = 2020 * time.Millisecond }, true},
		"crashed, longer":                {crashed, func(h *History) { h.Tenures[1].Gap = 860 * time.Millisecond }, true},
		"crashed, noticed late":          {crashed, func(h *History) { h.Tenures[1].Gap = 160 * time.Millisecond }, false},
		"crashed, shorter":               {crashed, func(h *History) { h.Tenures[1].Gap = 140 * time.Millisecond }, true},
		"crashed, and nobody saw it":     {crashed, func(h *History) { h.Tenures[1].Gap, h.Sightings = time.Hour, nil }, false},
		"the row was deleted": {resigned, func(h *History) {
			h.Leads[1].Deleted, h.Tenures[1].Gap = true, time.Hour
		}, true},
		"the row was deleted and made anew": {resigned, func(h *History) {
			h.Leads[1].Deleted = true
			h.Leads[2].Seq = 4
			h.Leads = append(h.Leads, Lead{Seq: 3, At: second(2).Add(10 * time.Millisecond), Role: scheduler})
			h.Tenures[1].Gap = 20 * time.Millisecond
		}, false},
		"the clock was set": {resigned, func(h *History) {
			h.Tenures[1].Gap, h.Leaps = time.Hour, []Leap{{second(1), time.Hour}}
		}, false},
	} {
		h := test.begin()
		test.spoil(h)
		found := slices.ContainsFunc(Check(h), func(f Finding) bool { return f.Kind == WrongGap })
		if found != test.wrong {
			t.Errorf("%s: found to be wrong: %t", name, found)
		}
	}
	if seen := SeenGaps(resigned()); seen != 1 {
		t.Errorf("%d gaps were seen", seen)
	}
	if seen := SeenGaps(crashed()); seen != 0 {
		t.Errorf("%d gaps of a leader that is silent for half a second were seen", seen)
	}
}

// A row that somebody deletes is made anew; what was before it still counts.
func TestDeletedRow(t *testing.T) {
	t.Parallel()
	anew := func(next int64) []Finding {
		s := good()
		s.Leads = append(s.Leads,
			Lead{Seq: s.seq + 1, Role: scheduler, Term: 2, Deleted: true},
			Lead{Seq: s.seq + 2, Role: scheduler},
			Lead{Seq: s.seq + 3, Role: scheduler, Term: next, Node: "c"})
		return Check(&s.History)
	}
	if findings := anew(3); len(findings) != 0 {
		t.Errorf("%v", findings)
	}
	for _, term := range []int64{1, 2} {
		if findings := anew(term); !slices.ContainsFunc(findings, func(f Finding) bool { return f.Kind == TermDown }) {
			t.Errorf("term %d after term 2: %v", term, findings)
		}
	}
}
