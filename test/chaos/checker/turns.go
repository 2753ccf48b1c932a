package checker

import "time"

// Turn is a job of a fair queue, behind a backlog of another key.
type Turn struct {
	Job       int64
	Kind, Key string
	// Seq is the journal's last number when the job was there.
	Seq int64
	// Most is how many jobs of other keys may start before one of the job's key does.
	Most int
}

// checkTurns demands that a backlog of one key does not delay the jobs of another one. Time
// proves nothing: while nobody leads, all wait.
func (c *check) checkTurns() {
	for i, ahead := range Ahead(c.History) {
		if turn := c.Turns[i]; ahead > turn.Most {
			c.find(Unfair, "", time.Time{}, "%d jobs of other keys started before the next one of key %q, while job %d waited; at most %d may",
				ahead, turn.Key, turn.Job, turn.Most)
		}
	}
}

// Ahead counts for each of the turns how many attempts of jobs of the same kind and other keys began,
// while the job waited for its first one, before one of its own key did: the most of them between
// two such attempts.
func Ahead(h *History) []int {
	counts := make([]int, len(h.Turns))
	for i, turn := range h.Turns {
		ahead := 0
		for _, run := range h.Runs {
			if !run.Began || run.Kind != turn.Kind {
				continue
			}
			if run.Job == turn.Job { // perhaps before Seq was read
				break
			}
			if run.Seq <= turn.Seq {
				continue
			}
			if ahead++; run.Key == turn.Key {
				ahead = 0
			}
			counts[i] = max(counts[i], ahead)
		}
	}
	return counts
}
