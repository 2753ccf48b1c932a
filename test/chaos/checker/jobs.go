package checker

import (
	"slices"
	"time"
)

// States of a job that has come to its end.
const (
	completed = "completed"
	cancelled = "cancelled"
	discarded = "discarded"
)

func (j *Job) terminal() bool { return !j.Finalized.IsZero() }

// checkJobs sets the ledger against the jobs, both ways.
func (c *check) checkJobs() {
	for i := range c.Rows {
		c.checkJobsOf(&c.Rows[i])
	}
	for i := range c.Jobs {
		job := &c.Jobs[i]
		if job.Cron != "" && c.rows[keyOf(job.Cron, job.Tick)] == nil {
			c.find(Phantom, job.Cron, job.Tick, "job %d has no tick in the ledger", job.ID)
		}
		switch {
		case !job.terminal():
			c.find(AckedNotTerminal, job.Cron, job.Tick, "job %d is still %s", job.ID, job.State)
		case slices.Contains(c.Poisoned, job.ID):
			if job.State != discarded {
				c.find(WrongVerdict, "", time.Time{}, "job %d can only fail, and is %s", job.ID, job.State)
			}
		case job.State == cancelled && !c.mayBeCancelled(job), job.State == discarded:
			c.find(Lost, job.Cron, job.Tick, "job %d was %s", job.ID, job.State)
		}
	}
}

func (c *check) mayBeCancelled(job *Job) bool {
	row := c.rows[keyOf(job.Cron, job.Tick)]
	return row != nil && row.Verdict == Replaced
}

func (c *check) checkJobsOf(row *Row) {
	jobs := c.jobsOf[keyOf(row.Cron, row.Tick)]
	fired := false
	for _, entry := range c.entries[keyOf(row.Cron, row.Tick)] {
		fired = fired || fires(entry.Verdict)
	}
	switch {
	case len(jobs) > 1:
		c.find(Double, row.Cron, row.Tick, "has %d jobs", len(jobs))
	case len(jobs) == 1 && !fired:
		c.find(Phantom, row.Cron, row.Tick, "is %s and has job %d", row.Verdict, jobs[0].ID)
	case len(jobs) == 0 && fired:
		c.find(Lost, row.Cron, row.Tick, "is %s and has no job", row.Verdict)
	case len(jobs) == 1 && jobs[0].ID != row.JobID:
		c.find(Lost, row.Cron, row.Tick, "names job %d and has job %d", row.JobID, jobs[0].ID)
	}
}

// attempt is one attempt of a job.
type attempt struct{ job, number int64 }

// checkLines sets what the jobs said themselves against the database.
func (c *check) checkLines() {
	began, ended := map[attempt]Line{}, map[attempt]Line{}
	for _, line := range c.Lines {
		a := attempt{line.Job, line.Attempt}
		if line.What == Ended {
			ended[a] = line
			continue
		}
		if twin, ok := began[a]; ok {
			c.find(Double, line.Cron, line.Tick, "attempt %d of job %d began on %s and on %s", a.number, a.job, twin.Node, line.Node)
		}
		began[a] = line
		c.checkBeginning(line)
	}
	for i := range c.Jobs {
		c.checkCompletion(&c.Jobs[i], began, ended)
	}
}

func (c *check) checkBeginning(line Line) {
	job := c.jobs[line.Job]
	switch {
	case job == nil || job.Cron != line.Cron || !job.Tick.Equal(line.Tick):
		c.find(Phantom, line.Cron, line.Tick, "job %d ran on %s and is not in the database", line.Job, line.Node)
		return
	case line.At.Add(line.Ahead).Before(line.Tick):
		c.find(Early, line.Cron, line.Tick, "job %d began at %s", line.Job, line.At.UTC().Format(time.RFC3339Nano))
	case job.State == completed && line.Attempt >= job.Attempt && line.At.After(job.Finalized):
		c.find(Double, line.Cron, line.Tick, "attempt %d of job %d began after the job was completed", line.Attempt, line.Job)
	}
	for _, entry := range c.entries[keyOf(line.Cron, line.Tick)] {
		if fires(entry.Verdict) && entry.Term != line.Term {
			c.find(StaleTerm, line.Cron, line.Tick, "job %d ran for term %d and was fired in term %d", line.Job, line.Term, entry.Term)
		}
	}
}

// checkCompletion demands that a job which counts as completed was completed by
// its last attempt, before that was written.
func (c *check) checkCompletion(job *Job, began, ended map[attempt]Line) {
	if job.State != completed {
		return
	}
	line, ok := ended[attempt{job.ID, job.Attempt}]
	switch {
	case ok && line.At.After(job.Finalized) && c.endedEarlier(job, ended):
		c.find(StaleAttempt, job.Cron, job.Tick, "job %d was completed before its attempt %d had ended; an earlier one had", job.ID, job.Attempt)
	case ok && line.At.After(job.Finalized):
		c.find(Lost, job.Cron, job.Tick, "job %d counted as completed before its run had ended", job.ID)
	case ok:
	case len(ended) > 0 && c.endedEarlier(job, ended):
		c.find(StaleAttempt, job.Cron, job.Tick, "job %d was completed in attempt %d, and an earlier attempt had ended", job.ID, job.Attempt)
	default:
		_, ran := began[attempt{job.ID, job.Attempt}]
		c.find(Lost, job.Cron, job.Tick, "job %d counts as completed, and no attempt came to its end (attempt %d began: %t)", job.ID, job.Attempt, ran)
	}
}

func (c *check) endedEarlier(job *Job, ended map[attempt]Line) bool {
	for number := range job.Attempt {
		if _, ok := ended[attempt{job.ID, number}]; ok {
			return true
		}
	}
	return false
}

// checkAcked demands that what was acknowledged is there. That it has come to its
// end is demanded of every job.
func (c *check) checkAcked() {
	for _, id := range c.Acked {
		if c.jobs[id] == nil {
			c.find(Lost, "", time.Time{}, "job %d was acknowledged and is not in the database", id)
		}
	}
}
