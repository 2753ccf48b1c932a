package checker

import (
	"math/rand/v2"
	"slices"
	"testing"
)

const sendJob = "send" // of a fair queue

// inTurns are jobs of tenant a, and job 205 of tenant b, which starts after two of them. The second
// attempt of job 201 comes before it, too. Job 206 of b is behind it, and starts after two more.
func inTurns() *story {
	s := good()
	s.Turns = []Turn{{Job: 205, Kind: sendJob, Key: "b", Seq: s.seq + 1, Most: 2}, {Job: 206, Kind: sendJob, Key: "b", Seq: s.seq + 1, Most: 2}}
	for at, job := range []int64{200, 201, 201, 205, 203, 204, 206, 207} {
		key := "a"
		if job == 205 || job == 206 {
			key = "b"
		}
		s.starts(sendJob, key, job, second(at))
	}
	return s
}

func TestTurns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		ahead []int
		spoil func(s *story)
	}{
		{"as it should be", []int{2, 2}, func(*story) {}},
		{"it had started", []int{0, 2}, func(s *story) { s.Turns[0].Seq = s.Runs[3].Seq }},
		{"none comes before", []int{0, 2}, func(s *story) { s.Runs = s.Runs[3:] }},
		{"one more comes before", []int{3, 3}, func(s *story) { s.Turns[0].Seq, s.Turns[1].Seq = s.Turns[0].Seq-1, s.Turns[1].Seq-1 }},
		{"one of an earlier backlog comes before", []int{2, 3}, func(s *story) { s.Runs[6], s.Runs[7] = s.Runs[7], s.Runs[6] }},
		{"the jobs have not started", []int{5, 5}, func(s *story) {
			s.Runs = slices.DeleteFunc(s.Runs, func(run Run) bool { return run.Key == "b" })
		}},
		{"only the first one has started", []int{2, 3}, func(s *story) { s.Runs = slices.Delete(s.Runs, 6, 7) }},
		{"the first one is another's", []int{2, 2}, func(s *story) { s.Runs[3].Job = 208; s.Turns = s.Turns[1:]; s.Turns = append(s.Turns, s.Turns[0]) }},
		{"one of another kind", []int{1, 2}, func(s *story) { s.Runs[2].Kind = "other" }},
		{"an end is no start", []int{1, 2}, func(s *story) { s.Runs[2].Began = false }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := inTurns()
			test.spoil(s)
			if got := Ahead(&s.History); !slices.Equal(got, test.ahead) {
				t.Errorf("%v jobs are ahead, want %d", got, test.ahead)
			}
			findings := slices.DeleteFunc(Check(&s.History), func(f Finding) bool { return f.Kind != Unfair })
			if want := slices.Max(test.ahead) > 2; (len(findings) > 0) != want {
				t.Errorf("found %v, want some: %t", findings, want)
			}
		})
	}
}

// perform starts the jobs of a backlog of 24 and one job of another key behind it, three at once, as a
// leader orders them: next returns which of the keys is served after so many starts. The first lost
// offers of the other key's job are not claimed, and one more turn in each slot passes.
func perform(next func(starts int) string, lost int) int {
	const slots = 3
	h := &History{Turns: []Turn{{Job: 25, Kind: sendJob, Key: "small", Most: 10}}}
	start := func(job int64, key string) {
		h.Runs = append(h.Runs, Run{Seq: int64(len(h.Runs) + 1), Job: job, Kind: sendJob, Key: key, Began: true})
	}
	for big, blocked := int64(1), 0; big <= 24; {
		blocked--
		switch key := next(len(h.Runs)); {
		case key != "small" || blocked > 0:
			start(big, "big")
			big++
		case lost > 0:
			lost, blocked = lost-1, slots+1
		default:
			start(25, "small")
			return Ahead(h)[0]
		}
	}
	return Ahead(h)[0]
}

// The bound of a run with faults holds for a leader that serves the keys in turns, from whichever one,
// if each term is new and two offers are lost. It fails each leader that does not.
func TestBoundOnTurns(t *testing.T) {
	t.Parallel()
	const most = 10
	keys := []string{"big", "small"}
	for range 1000 {
		first, failover := rand.IntN(2), rand.IntN(24)
		next := func(starts int) string {
			if starts == failover { // the next leader begins with the first key
				first = starts
			}
			return keys[(starts+first)%2]
		}
		if ahead := perform(next, rand.IntN(3)); ahead > most {
			t.Fatalf("%d jobs are ahead of one in turns", ahead)
		}
	}
	for name, next := range map[string]func(starts int) string{
		"by priority and time":   func(int) string { return "big" },
		"a page of one key":      func(starts int) string { return keys[starts/20%2] },
		"twelve of a key a turn": func(starts int) string { return keys[starts/12%2] },
		"by share of backlog": func(starts int) string {
			if starts < 12 {
				return "big"
			}
			return "small"
		},
	} {
		if ahead := perform(next, 0); ahead <= most {
			t.Errorf("%s: %d jobs are ahead, which is not found", name, ahead)
		}
	}
}
