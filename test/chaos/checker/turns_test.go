package checker

import (
	"slices"
	"testing"
	"time"
)

const sendJob = "send" // of a fair queue

// inTurns are the jobs 201 to 204 of tenant a and job 205 of tenant b, which starts after two of
// them. The second attempt of job 201 comes before it, too.
func inTurns() *story {
	s := good()
	s.Turns = []Turn{{Job: 205, Backlog: []int64{201, 202, 203, 204}, Most: 2}}
	for at, job := range []int64{201, 202, 201, 205, 203, 204} {
		s.starts(sendJob, "", job, second(at))
	}
	return s
}

func TestTurns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		ahead int
		spoil func(s *story)
	}{
		{"as it should be", 2, func(*story) {}},
		{"none comes before", 0, func(s *story) { s.Runs = s.Runs[3:] }},
		{"one more comes before", 3, func(s *story) { s.Runs[4].Job, s.Runs[3].Job = s.Runs[3].Job, s.Runs[4].Job }},
		{"the job has not started", 4, func(s *story) { s.Runs = slices.Delete(s.Runs, 3, 4) }},
		{"an end is no start", 2, func(s *story) {
			s.ends(sendJob, "", 203, time.Time{}, second(0))
			end := s.Runs[len(s.Runs)-1]
			end.Seq = s.Runs[0].Seq
			s.Runs = slices.Insert(s.Runs[:len(s.Runs)-1], 0, end)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := inTurns()
			test.spoil(s)
			if got := Ahead(&s.History); !slices.Equal(got, []int{test.ahead}) {
				t.Errorf("%v jobs are ahead, want %d", got, test.ahead)
			}
			findings := slices.DeleteFunc(Check(&s.History), func(f Finding) bool { return f.Kind != Unfair })
			if want := test.ahead > 2; (len(findings) > 0) != want {
				t.Errorf("found %v, want some: %t", findings, want)
			}
		})
	}
}
