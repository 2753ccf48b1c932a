package checker

import "time"

// Turn is a job of a fair queue, and the backlog of another key that was inserted in the same
// transaction and comes before it by priority and time.
type Turn struct {
	Job     int64
	Backlog []int64
	// Most is how many jobs of the backlog may start before the job.
	Most int
}

// checkTurns demands that a backlog of one key does not delay the jobs of another one. Time
// proves nothing: while nobody leads, all wait.
func (c *check) checkTurns() {
	for i, ahead := range Ahead(c.History) {
		if turn := c.Turns[i]; ahead > turn.Most {
			c.find(Unfair, "", time.Time{}, "%d of %d jobs of another key started before job %d; at most %d may", ahead, len(turn.Backlog), turn.Job, turn.Most)
		}
	}
}

// Ahead counts for each of the turns how many jobs of the backlog started before the job did.
func Ahead(h *History) []int {
	first := map[int64]int64{}
	for _, run := range h.Runs {
		if _, ok := first[run.Job]; run.Began && !ok {
			first[run.Job] = run.Seq
		}
	}
	counts := make([]int, len(h.Turns))
	for i, turn := range h.Turns {
		at, started := first[turn.Job]
		for _, job := range turn.Backlog {
			if seq, ok := first[job]; ok && (!started || seq < at) {
				counts[i]++
			}
		}
	}
	return counts
}
