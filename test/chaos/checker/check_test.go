package checker

import (
	"slices"
	"testing"
	"time"
)

var noon = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

func second(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }

// story is a history that is made up, tick by tick.
type story struct {
	History

	seq, txid int64
	term      int64
	node      string
}

// tell begins a story: one cron that is due at the seconds 1 to ticks, and a
// leader.
func tell(ticks int, policy Cron) *story {
	policy.Name, policy.Since, policy.Until = "pulse", noon, second(ticks+1)
	if policy.Rule.Every == 0 {
		policy.Rule.Every = time.Second
	}
	if policy.Overlap == "" {
		policy.Overlap = OverlapAllow
	}
	if policy.CatchUp == "" {
		policy.CatchUp = CatchUpLatest
	}
	if policy.Window == 0 {
		policy.Window = time.Hour
	}
	s := &story{History: History{Crons: []Cron{policy}}, txid: 100}
	s.lead(1, "a")
	return s
}

func (s *story) lead(term int64, node string) {
	s.seq++
	s.term, s.node = term, node
	s.Leads = append(s.Leads, Lead{Seq: s.seq, At: noon, Role: scheduler, Term: term, Node: node})
}

// writes is one transaction's entry about a tick.
func (s *story) writes(n int, at time.Time, verdict string) {
	s.seq++
	s.Entries = append(s.Entries, Entry{
		Seq: s.seq, At: at, Txid: s.txid, Cron: "pulse", Tick: second(n), Verdict: verdict, Term: s.term, Node: s.node,
	})
	for i := range s.Rows {
		if s.Rows[i].Tick.Equal(second(n)) {
			s.Rows[i].Verdict = verdict
			return
		}
	}
	s.Rows = append(s.Rows, Row{Cron: "pulse", Tick: second(n), Count: 1, Verdict: verdict, Term: s.term, Node: s.node})
}

// decides is writes in a transaction of its own.
func (s *story) decides(n int, at time.Time, verdict string) {
	s.txid++
	s.writes(n, at, verdict)
}

// runs gives the last tick that was written a job, whose id is its second.
func (s *story) runs(n int, from, to time.Time) {
	id := int64(n)
	for i := range s.Rows {
		if s.Rows[i].Tick.Equal(second(n)) {
			s.Rows[i].JobID = id
		}
	}
	s.Jobs = append(s.Jobs, Job{ID: id, Cron: "pulse", Tick: second(n), State: completed, Attempt: 1, Finalized: to.Add(time.Millisecond), Ended: to.Add(2 * time.Millisecond)})
	line := Line{What: Began, At: from, Cron: "pulse", Tick: second(n), Job: id, Attempt: 1, Term: s.term, Node: s.node}
	s.Lines = append(s.Lines, line)
	line.What, line.At = Ended, to
	s.Lines = append(s.Lines, line)
}

// fires is a tick as it should be.
func (s *story) fires(n int) {
	at := second(n).Add(5 * time.Millisecond)
	s.decides(n, at, Fired)
	s.runs(n, at.Add(10*time.Millisecond), at.Add(20*time.Millisecond))
}

// good is three ticks, of which the last two fire under another leader, and a job
// that was enqueued by hand.
func good() *story {
	s := tell(3, Cron{})
	s.fires(1)
	s.lead(2, "b")
	s.fires(2)
	s.fires(3)
	s.Jobs = append(s.Jobs, Job{ID: 50, State: completed, Attempt: 1, Finalized: second(2)})
	for i, what := range []string{Began, Ended} {
		s.Lines = append(s.Lines, Line{What: what, At: second(i), Job: 50, Attempt: 1, Node: "c"})
	}
	s.Acked = []int64{50}
	return s
}

func TestGoodHistories(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*story{
		"fired": good(), "caught up": caughtUp(), "caught up in slices": inSlices(), "queued": queued(), "replaced": replaced(), "skipped": skipped(),
		"excluded": excluded(), "again": again(), "triggered": triggered(), "limited": limited(), "at a rate": atRate(), "in turns": inTurns(),
	} {
		for _, finding := range Check(&s.History) {
			t.Errorf("%s: %s", name, finding)
		}
	}
}

// caughtUp is an outage of 400 s: two of the missed ticks are caught up, those
// before are beyond the limit, and those beyond the window are counted in one row.
func caughtUp() *story {
	s := tell(400, Cron{CatchUp: CatchUpAll, Limit: 2, Window: 200 * time.Second})
	now := second(400)
	s.txid++
	for n := 1; n <= 400; n++ {
		switch late := 400 - n; {
		case late > 200:
			if n == 1 {
				s.writes(n, now, SkippedWindow)
				s.Rows[0].Last, s.Rows[0].Count = second(199), 199
			}
		case late > 62:
			s.writes(n, now, SkippedLimit)
		case late > 60:
			s.writes(n, now, CaughtUp)
			s.runs(n, now, now)
		default:
			s.writes(n, now, Fired)
			s.runs(n, now, now)
		}
	}
	return s
}

// inSlices is the same outage, settled by three transactions.
func inSlices() *story {
	s := caughtUp()
	for i := range s.Entries {
		if n := int(s.Entries[i].Tick.Sub(noon) / time.Second); n > 300 {
			s.Entries[i].Txid++
		} else if n > 250 {
			s.Entries[i].Txid += 2
		}
	}
	return s
}

func queued() *story {
	s := tell(3, Cron{Overlap: OverlapQueue})
	s.decides(1, second(1), Fired)
	s.runs(1, second(1), second(4))
	s.decides(2, second(2), Queued)
	s.decides(3, second(3), SkippedOverlap)
	s.decides(2, second(5), Fired)
	s.runs(2, second(5), second(6))
	return s
}

func replaced() *story {
	s := tell(3, Cron{Overlap: OverlapReplace})
	s.decides(1, second(1), Fired)
	s.runs(1, second(1), second(3))
	s.Jobs[0].State = cancelled
	s.Lines = s.Lines[:1] // it did not come to its end
	s.lead(2, "b")
	s.txid++
	s.writes(2, second(3), Replaced)
	s.writes(3, second(3), Fired)
	s.writes(1, second(3), Replaced)
	s.Entries[3].Term, s.Entries[3].Node = 1, "a" // as it fired
	s.runs(3, second(3), second(4))
	return s
}

func skipped() *story {
	s := tell(3, Cron{Overlap: OverlapSkip})
	s.decides(1, second(1), Fired)
	s.runs(1, second(1), second(2).Add(500*time.Millisecond))
	s.decides(2, second(2), SkippedOverlap)
	s.fires(3)
	return s
}

func excluded() *story {
	s := tell(2, Cron{Excluded: &Rule{Seconds: []int{2}}})
	s.fires(1)
	s.decides(2, second(2), SkippedExcluded)
	return s
}

// triggered is a tick that somebody ran by hand before the schedule came to it.
func triggered() *story {
	s := tell(2, Cron{})
	s.term, s.node = 0, ""
	s.decides(1, second(1).Add(time.Millisecond), Triggered)
	s.runs(1, second(1).Add(2*time.Millisecond), second(1).Add(3*time.Millisecond))
	s.term, s.node = 1, "a"
	s.fires(2)
	return s
}

// again is a job whose node was lost: its second attempt completed it, and the
// first one, on a node that was only frozen, ended afterwards.
func again() *story {
	s := tell(1, Cron{})
	s.fires(1)
	s.Jobs[0].Attempt, s.Jobs[0].Finalized = 2, second(4)
	for i := range s.Lines {
		line := s.Lines[i]
		line.Attempt, line.Node, line.At = 2, "c", second(2)
		s.Lines = append(s.Lines, line)
	}
	s.Lines[1].At = second(9)
	return s
}

func TestFindings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		want  Kind
		begin func() *story
		spoil func(s *story)
	}{
		{"a tick is not recorded", Lost, good, func(s *story) { s.Rows = s.Rows[:2] }},
		{"a tick fired without a job", Lost, good, func(s *story) { s.Jobs = s.Jobs[1:] }},
		{"a tick names another job", Lost, good, func(s *story) { s.Rows[0].JobID = 50 }},
		{"a completed job did not run", Lost, good, func(s *story) { s.Lines = s.Lines[2:] }},
		{"a completed job did not end", Lost, good, func(s *story) { s.Lines = slices.Delete(s.Lines, 1, 2) }},
		{"a job was completed before its end", Lost, good, func(s *story) { s.Lines[1].At = second(3) }},
		{"an acknowledged job is gone", Lost, good, func(s *story) { s.Acked = append(s.Acked, 51) }},
		{"a job was discarded", Lost, good, func(s *story) { s.Jobs[0].State = discarded }},
		{"a job was cancelled for nothing", Lost, good, func(s *story) { s.Jobs[0].State = cancelled }},
		{"a tick waits for ever", Lost, queued, func(s *story) {
			s.Entries, s.Rows[1].Verdict, s.Rows[1].JobID, s.Jobs, s.Lines = s.Entries[:3], Queued, 0, s.Jobs[:1], s.Lines[:2]
		}},

		{"a tick stands twice", Double, good, func(s *story) { s.Rows = append(s.Rows, s.Rows[1]) }},
		{"a tick stands in a range too", Double, caughtUp, func(s *story) { s.Rows[0].Last, s.Rows[0].Count = second(200), 200 }},
		{"a tick has two jobs", Double, good, func(s *story) {
			twin := s.Jobs[0]
			twin.ID, twin.Attempt, twin.State = 60, 0, cancelled
			s.Jobs = append(s.Jobs, twin)
		}},
		{"an attempt ran twice", Double, good, func(s *story) { s.Lines = append(s.Lines, s.Lines[0]) }},
		{"a job ran again after it was completed", Double, good, func(s *story) {
			line := s.Lines[0]
			line.Attempt, line.At = 2, second(9)
			s.Lines = append(s.Lines, line)
		}},

		{"a tick was recorded early", Early, good, func(s *story) { s.Entries[1].At = second(1) }},
		{"a job ran early", Early, good, func(s *story) { s.Lines[2].At = second(1) }},

		{"a tick fired late", Late, good, func(s *story) { s.Entries[1].At = second(2).Add(2 * time.Minute) }},

		{"a tick was not due", Phantom, good, func(s *story) { s.Rows[2].Tick = s.Rows[2].Tick.Add(500 * time.Millisecond) }},
		{"a tick came before the cron", Phantom, good, func(s *story) { s.fires(0) }},
		{"a tick came after the cron's end", Phantom, good, func(s *story) { s.fires(4) }},
		{"nobody wrote a row", Phantom, good, func(s *story) { s.Entries = s.Entries[:2] }},
		{"a job has no tick", Phantom, good, func(s *story) { s.Jobs[0].Tick = second(9) }},
		{"a skipped tick has a job", Phantom, skipped, func(s *story) { s.runs(2, second(2), second(2)) }},
		{"what ran is not in the database", Phantom, good, func(s *story) { s.Lines[0].Job = 77 }},

		{"a deposed leader wrote", StaleTerm, good, func(s *story) { s.Entries[1].Term, s.Entries[1].Node = 1, "a" }},
		{"another node wrote in the term", StaleTerm, good, func(s *story) { s.Entries[1].Node = "c" }},
		{"a leader wrote after it resigned", StaleTerm, good, func(s *story) {
			s.Leads = append(s.Leads, Lead{Seq: s.seq + 1, Role: scheduler, Term: 2})
			s.Entries[2].Seq = s.seq + 2
		}},
		{"a tick by hand has no job", Lost, triggered, func(s *story) { s.Jobs = s.Jobs[1:] }},
		{"a job ran for another term", StaleTerm, good, func(s *story) { s.Lines[2].Term = 1 }},

		{"a leader calls its write one by hand", StaleTerm, triggered, func(s *story) { s.Entries[0].Node = "b" }},
		{"a tick that has its run is triggered", WrongVerdict, good, func(s *story) { s.decides(1, second(2), Triggered) }},

		{"a job was completed that can only fail", WrongVerdict, good, func(s *story) { s.Poisoned = []int64{50} }},
		{"a poisoned job waits", AckedNotTerminal, good, func(s *story) {
			s.Poisoned, s.Jobs[3].State, s.Jobs[3].Finalized = []int64{50}, "retryable", time.Time{}
		}},
		{"a stale attempt completed the job before the newer one", StaleAttempt, again, func(s *story) { s.Jobs[0].Finalized = second(1).Add(time.Second / 2) }},
		{"a stale attempt completed the job", StaleAttempt, good, func(s *story) { s.Jobs[0].Attempt = 2 }},

		{"an acknowledged job waits", AckedNotTerminal, good, func(s *story) { s.Jobs[3].State, s.Jobs[3].Finalized = "available", time.Time{} }},
		{"a cron's job waits", AckedNotTerminal, good, func(s *story) { s.Jobs[0].State, s.Jobs[0].Finalized = "running", time.Time{} }},

		{"two nodes lead one term", TwoLeaders, good, func(s *story) {
			s.Leads = append(s.Leads, Lead{Seq: s.seq + 1, Role: scheduler, Term: 2, Node: "c"})
		}},
		{"a term is used again", TermDown, good, func(s *story) {
			s.Leads = append(s.Leads, Lead{Seq: s.seq + 1, Role: scheduler, Term: 2}, Lead{Seq: s.seq + 2, Role: scheduler, Term: 2, Node: "b"})
		}},
		{"a term goes down", TermDown, good, func(s *story) {
			s.Leads = append(s.Leads, Lead{Seq: s.seq + 1, Role: scheduler, Term: 1, Node: "c"})
		}},

		{"a fresh tick was taken for missed", WrongVerdict, good, func(s *story) { s.Entries[1].Verdict, s.Rows[1].Verdict = CaughtUp, CaughtUp }},
		{"a job could not be inserted", WrongVerdict, good, func(s *story) { s.decides(1, second(1), "failed") }},
		{"a range counts wrong", WrongVerdict, caughtUp, func(s *story) { s.Rows[0].Count = 198 }},
		{"a row was changed in silence", WrongVerdict, skipped, func(s *story) { s.Rows[1].Verdict = SkippedWindow }},
		{"catch_up is none", WrongVerdict, caughtUp, func(s *story) { s.Crons[0].CatchUp = CatchUpNone }},
		{"catch_up is latest", WrongVerdict, caughtUp, func(s *story) { s.Crons[0].CatchUp = CatchUpLatest }},
		{"the limit is higher", WrongVerdict, caughtUp, func(s *story) { s.Crons[0].Limit = 3 }},
		{"the limit is lower", WrongVerdict, caughtUp, func(s *story) { s.Crons[0].Limit = 1 }},
		{"the window is longer", WrongVerdict, caughtUp, func(s *story) { s.Crons[0].Window = time.Hour }},
		{"the window is shorter", WrongVerdict, caughtUp, func(s *story) { s.Crons[0].Window = 150 * time.Second }},
		{"the last slice catches up too little", WrongVerdict, inSlices, func(s *story) { s.Crons[0].Limit = 3 }},
		{"the last slice catches up too much", WrongVerdict, inSlices, func(s *story) { s.Crons[0].Limit = 1 }},
		{"an older tick was caught up", WrongVerdict, caughtUp, func(s *story) { swap(s, 337, 338) }},
		{"a tick was skipped for nothing", WrongVerdict, skipped, func(s *story) { s.Jobs[0].Ended = second(-1) }},
		{"nothing runs under allow", WrongVerdict, skipped, func(s *story) { s.Crons[0].Overlap = OverlapAllow }},
		{"two wait in a queue of one", WrongVerdict, queued, func(s *story) { s.Entries[2].Verdict, s.Rows[2].Verdict = Queued, Queued }},
		{"a tick passed the queue", WrongVerdict, queued, func(s *story) {
			s.Entries[2].Verdict, s.Rows[2].Verdict = Fired, Fired
			s.runs(3, second(3), second(4))
		}},
		{"the queue was turned round", WrongVerdict, queued, func(s *story) {
			s.Crons[0].Overlap = OverlapQueueAll
			s.Entries[2].Verdict, s.Rows[2].Verdict = Queued, Queued
			s.decides(3, second(6).Add(time.Second), Fired)
			s.Entries[3], s.Entries[4] = swapped(s.Entries[3], s.Entries[4])
		}},
		{"a tick was replaced by nothing", WrongVerdict, replaced, func(s *story) { s.Entries[1].Txid++ }},
		{"a run was replaced by nothing", WrongVerdict, replaced, func(s *story) { s.Entries[3].Txid++ }},
		{"an excluded tick fired", WrongVerdict, excluded, func(s *story) { s.Entries[1].Verdict, s.Rows[1].Verdict = Fired, Fired }},
		{"a tick was excluded for nothing", WrongVerdict, excluded, func(s *story) { s.Crons[0].Excluded = nil }},

		{"a run overlaps", Overlap, skipped, func(s *story) { s.Jobs[0].Ended = second(4) }},
		{"a run overlaps, by the journal", Overlap, skipped, func(s *story) { s.Jobs[0].EndedSeq = s.seq + 1 }},
		{"a turn came too early", Overlap, queued, func(s *story) { s.Jobs[0].Ended = second(6) }},
		{"a run was not replaced", Overlap, replaced, func(s *story) {
			s.Rows[0].Verdict = Fired
			s.Entries = slices.DeleteFunc(s.Entries, func(e Entry) bool { return e.Verdict == Replaced && e.Tick.Equal(second(1)) })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := test.begin()
			test.spoil(s)
			findings := Check(&s.History)
			if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Kind == test.want }) {
				t.Errorf("found %v, want %s", findings, test.want)
			}
		})
	}
}

// swap exchanges what was decided about two ticks.
func swap(s *story, m, n int) {
	for i := range s.Entries {
		switch tick := &s.Entries[i].Tick; {
		case tick.Equal(second(m)):
			*tick = second(n)
		case tick.Equal(second(n)):
			*tick = second(m)
		}
	}
	for i := range s.Rows {
		switch tick := &s.Rows[i].Tick; {
		case tick.Equal(second(m)):
			*tick = second(n)
		case tick.Equal(second(n)):
			*tick = second(m)
		}
	}
}

// swapped exchanges the places of two entries in the journal.
func swapped(a, b Entry) (first, then Entry) {
	a.Seq, b.Seq = b.Seq, a.Seq
	return b, a
}

func TestRule(t *testing.T) {
	t.Parallel()
	kathmandu, err := time.LoadLocation("Asia/Kathmandu")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		rule Rule
		want []int // seconds after noon, of the first ten
	}{
		{"each", Rule{}, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		{"every", Rule{Every: 4 * time.Second}, []int{4, 8}},
		{"fields", Rule{Seconds: []int{3, 9}, Hours: []int{12}}, []int{3, 9}},
		{"another hour", Rule{Hours: []int{11}}, nil},
		{"zone", Rule{Seconds: []int{7}, Minutes: []int{45}, Hours: []int{17}, Zone: kathmandu}, []int{7}},
	} {
		cron := Cron{Rule: test.rule, Since: noon.Add(time.Millisecond), Until: second(11)}
		var got []int
		for _, at := range cron.due() {
			got = append(got, int(at.Sub(noon)/time.Second))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: due at %v, want %v", test.name, got, test.want)
		}
	}
	if (&Rule{}).Covers(noon.Add(time.Millisecond)) {
		t.Error("a rule covers a part of a second")
	}
}

// A tick that was decided before the clock was set is late, or early, by the leap; one
// that is written long after it has no excuse.
func TestLeapOfTheClock(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		by    time.Duration
		after time.Duration // from the leap to the entry
		want  []Kind
	}{
		{time.Hour, time.Second, nil},
		{time.Hour, time.Minute, []Kind{Late}},
		{-time.Hour, time.Second, nil},
		{-time.Hour, time.Minute, []Kind{Early}},
	} {
		s := tell(1, Cron{})
		leap := second(1).Add(test.by)
		written := leap.Add(test.after)
		s.Leaps = []Leap{{At: leap, By: test.by}}
		s.decides(1, written, Fired)
		s.runs(1, second(1).Add(time.Second), second(1).Add(2*time.Second))
		var got []Kind
		for _, finding := range Check(&s.History) {
			got = append(got, finding.Kind)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s after a leap by %s: %v; want %v", test.after, test.by, got, test.want)
		}
	}
}

// Jobs that leave no lines are judged by the database alone.
func TestUnwitnessedJobs(t *testing.T) {
	t.Parallel()
	unwitnessed := func() *History {
		h := &good().History
		h.Lines, h.Unwitnessed = nil, true
		return h
	}
	if findings := Check(unwitnessed()); len(findings) != 0 {
		t.Errorf("%v", findings)
	}
	for name, spoil := range map[string]func(*History){
		"a ledger row is deleted": func(h *History) { h.Rows = slices.Delete(h.Rows, 1, 2) },
		"a job is deleted":        func(h *History) { h.Jobs = h.Jobs[1:] },
		"an acknowledged job":     func(h *History) { h.Jobs = h.Jobs[:3] },
	} {
		h := unwitnessed()
		spoil(h)
		if !slices.ContainsFunc(Check(h), func(f Finding) bool { return f.Kind == Lost }) {
			t.Errorf("%s: nothing is lost", name)
		}
	}
}
