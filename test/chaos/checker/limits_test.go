package checker

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const (
	importJob = "import" // has a limit for each key
	mailJob   = "mail"   // has a rate for each key
)

// starts is the start of an attempt of a limited job, in the journal.
func (s *story) starts(kind, key string, job int64, at time.Time) {
	s.seq++
	s.Runs = append(s.Runs, Run{
		Seq: s.seq, Job: job, Kind: kind, Key: key, Began: true, At: at, From: at.Add(-time.Millisecond), To: at.Add(time.Millisecond),
	})
}

// ends is the end of an attempt.
func (s *story) ends(kind, key string, job int64, start, at time.Time) {
	s.seq++
	s.Runs = append(s.Runs, Run{Seq: s.seq, Job: job, Kind: kind, Key: key, At: start, From: at, To: at})
}

// completes is a job that was acknowledged and ran from one time to another.
func (s *story) completes(job int64, from, to time.Time) {
	s.Acked = append(s.Acked, job)
	s.Jobs = append(s.Jobs, Job{ID: job, State: completed, Attempt: 1, Finalized: to})
	for _, line := range []Line{{What: Began, At: from}, {What: Ended, At: to}} {
		line.Job, line.Attempt, line.Node = job, 1, "c"
		s.Lines = append(s.Lines, line)
	}
}

// limited are the jobs 101 to 106 of tenant a, of which two run at once, and job 107 of tenant
// b, which runs beside them.
func limited() *story {
	s := good()
	s.KeyLimits = map[string]int{importJob: 2}
	run := func(from, to int, jobs ...int64) {
		for _, job := range jobs {
			s.starts(importJob, tenant(job), job, second(from))
		}
		for _, job := range jobs {
			s.ends(importJob, tenant(job), job, second(from), second(to))
			s.completes(job, second(from), second(to))
		}
	}
	run(1, 2, 101, 102)
	run(2, 3, 103, 104, 107)
	run(3, 4, 105, 106)
	return s
}

func tenant(job int64) string {
	if job == 107 {
		return "b"
	}
	return "a"
}

// atRate are jobs at a rate of three in 4 s. The leader changes after the third. Node b hangs
// with job 3, which starts again. The first start in each place that becomes free is just late
// enough.
func atRate() *story {
	s := good()
	s.Rates = map[string]Rate{mailJob: {Limit: 3, Per: 4 * time.Second}}
	for job := range 3 {
		s.starts(mailJob, "a", int64(job+1), second(job+1))
		s.starts(mailJob, "b", int64(job+11), second(job+1))
	}
	s.ends(mailJob, "a", 1, second(1), second(3))
	s.lead(3, "c")
	s.starts(mailJob, "a", 4, second(5).Add(time.Microsecond))
	s.ends(mailJob, "a", 3, second(3), second(6))
	s.starts(mailJob, "a", 3, second(6).Add(time.Microsecond))
	s.starts(mailJob, "a", 5, second(7).Add(time.Microsecond))
	return s
}

// start is the n-th start of tenant a in a story at a rate, from 1.
func (s *story) start(n int) *Run {
	for i := range s.Runs {
		if s.Runs[i].Began && s.Runs[i].Key == "a" {
			if n--; n == 0 {
				return &s.Runs[i]
			}
		}
	}
	panic("no such start")
}

// moves has a start at another time.
func (s *story) moves(n int, to time.Time) {
	start := s.start(n)
	start.At, start.From, start.To = to, to, to
}

func TestLimitFindings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		want  Kind
		begin func() *story
		spoil func(s *story)
	}{
		{"a third job of a key runs", OverLimit, limited, func(s *story) {
			s.Runs = slices.DeleteFunc(s.Runs, func(run Run) bool { return !run.Began && run.Job == 101 })
		}},
		{"the limit is lower", OverLimit, limited, func(s *story) { s.KeyLimits[importJob] = 1 }},
		{"a limited job starves", AckedNotTerminal, limited, func(s *story) { s.starve(107) }},
		{"the last of a backlog starves", AckedNotTerminal, limited, func(s *story) { s.starve(106) }},
		{"a limited job is gone", Lost, limited, func(s *story) {
			s.starve(107)
			s.Jobs = slices.DeleteFunc(s.Jobs, func(job Job) bool { return job.ID == 107 })
		}},

		{"a start too many in a window", OverRate, atRate, func(s *story) { s.starts(mailJob, "a", 6, second(3)) }},
		{"a start at the end of a window", OverRate, atRate, func(s *story) { s.moves(4, second(5)) }},
		{"the next leader forgot the window", OverRate, atRate, func(s *story) {
			for n := 4; n <= 6; n++ {
				s.moves(n, second(3).Add(time.Duration(n)*100*time.Millisecond))
			}
		}},
		{"the next leader did not count the hung node", OverRate, atRate, func(s *story) {
			s.moves(4, second(4)) // as if job 3 had not started
		}},
		{"a second attempt did not count", OverRate, atRate, func(s *story) {
			s.starts(mailJob, "a", 6, second(7).Add(2*time.Microsecond))
		}},
		{"the rate is lower", OverRate, atRate, func(s *story) { s.Rates[mailJob] = Rate{2, 4 * time.Second} }},
		{"the window is longer", OverRate, atRate, func(s *story) { s.Rates[mailJob] = Rate{3, 5 * time.Second} }},

		{"an attempt says that it started before its claim", WrongStart, atRate, func(s *story) { s.start(2).At = second(1) }},
		{"an attempt says that it started after its claim", WrongStart, atRate, func(s *story) { s.start(6).At = second(9) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := test.begin()
			test.spoil(s)
			findings := Check(&s.History)
			if len(findings) == 0 || slices.ContainsFunc(findings, func(f Finding) bool { return f.Kind != test.want }) {
				t.Errorf("found %v, want %s", findings, test.want)
			}
		})
	}
}

// starve has a job wait for ever.
func (s *story) starve(job int64) {
	for i := range s.Jobs {
		if s.Jobs[i].ID == job {
			s.Jobs[i].State, s.Jobs[i].Attempt, s.Jobs[i].Finalized = "available", 0, time.Time{}
		}
	}
	s.Runs = slices.DeleteFunc(s.Runs, func(run Run) bool { return run.Job == job })
	s.Lines = slices.DeleteFunc(s.Lines, func(line Line) bool { return line.Job == job })
}

// Windows are judged unless the clock was set in them, showed their times twice, or was set less
// than 15 s before or after them.
func TestRateWhileClockLeaps(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from, to int // what the clock showed before it was set, and afterwards
		judged   bool
	}{
		{2, 3600, false},
		{3600, 2, false},
		{60, 0, false},
		{-10, 60, false},
		{60, 17, false},
		{60, 120, true},
		{120, 60, true},
		{-60, -20, true},
		{-20, -60, true},
	} {
		s := atRate()
		s.starts(mailJob, "a", 6, second(2))
		s.starts(mailJob, "a", 7, second(40))
		s.Leaps = []Leap{{At: second(test.to), By: second(test.to).Sub(second(test.from))}}
		if found := Check(&s.History); (len(found) > 0) != test.judged {
			t.Errorf("the clock was set from %d s to %d s: found %v", test.from, test.to, found)
		}
	}
}

func TestFullWindows(t *testing.T) {
	t.Parallel()
	for rate, want := range map[Rate]int{
		{3, 4 * time.Second}: 5, {3, time.Second}: 0, {6, time.Minute}: 1, {7, time.Minute}: 0, {1, time.Second}: 9,
	} {
		s := atRate()
		s.Rates[mailJob] = rate
		if got := FullWindows(&s.History); got != want {
			t.Errorf("%s: %d windows are full, want %d", fmt.Sprint(rate), got, want)
		}
	}
}
