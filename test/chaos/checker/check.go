package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Kind names what is wrong.
type Kind string

// The kinds of findings.
const (
	// Lost: a due tick is not in the ledger, or fired without a job, or a job
	// that is said to be done did not run.
	Lost Kind = "LOST"
	// Double: a tick stands twice, has two jobs, or an attempt ran twice.
	Double Kind = "DOUBLE"
	// Early: something happened before its tick.
	Early Kind = "EARLY"
	// Late: a tick counts as fired on time though it was not.
	Late Kind = "LATE"
	// Phantom: something ran or was recorded that was not due.
	Phantom Kind = "PHANTOM"
	// StaleTerm: a leader wrote after its term was over.
	StaleTerm Kind = "STALE_TERM"
	// StaleAttempt: a job was finished by an attempt that was not its last.
	StaleAttempt Kind = "STALE_ATTEMPT"
	// AckedNotTerminal: a job that was committed has not come to its end.
	AckedNotTerminal Kind = "ACKED_NOT_TERMINAL"
	// WrongVerdict: the policies ask for another verdict.
	WrongVerdict Kind = "WRONG_VERDICT"
	// Overlap: a run began while an earlier one had not ended.
	Overlap Kind = "OVERLAP"
	// TwoLeaders: two nodes led a role in one term.
	TwoLeaders Kind = "TWO_LEADERS"
	// TermDown: a term was not above the one before it.
	TermDown Kind = "TERM_DOWN"
	// WrongGap: the time without a leader that was recorded is not what was seen.
	WrongGap Kind = "WRONG_GAP"
	// OverLimit: more jobs with one key ran at once than its limit.
	OverLimit Kind = "OVER_LIMIT"
	// OverRate: more jobs with one key started in a window than its rate allows.
	OverRate Kind = "OVER_RATE"
	// Unfair: a backlog of one key of a fair queue delayed a job of another.
	Unfair Kind = "UNFAIR"
	// WrongStart: the recorded start of an attempt is not the time of its claim.
	WrongStart Kind = "WRONG_START"
)

// Finding is one thing that is wrong.
type Finding struct {
	Kind   Kind
	Cron   string
	Tick   time.Time
	Detail string
}

func (f Finding) String() string {
	where := ""
	if f.Cron != "" {
		where = fmt.Sprintf(" %s %s:", f.Cron, f.Tick.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s%s %s", f.Kind, where, f.Detail)
}

// key is a tick of a cron.
type key struct {
	cron string
	tick int64 // nanoseconds since the epoch
}

func keyOf(cron string, tick time.Time) key { return key{cron, tick.UnixNano()} }

// check is one judgement on its way.
type check struct {
	*History

	findings []Finding
	crons    map[string]*Cron
	rows     map[key]*Row
	entries  map[key][]Entry // of each row, in order
	jobs     map[int64]*Job
	jobsOf   map[key][]*Job
}

// Check judges a history. No findings mean that every promise was kept.
func Check(h *History) []Finding {
	c := &check{
		History: h, crons: map[string]*Cron{}, rows: map[key]*Row{}, entries: map[key][]Entry{},
		jobs: map[int64]*Job{}, jobsOf: map[key][]*Job{},
	}
	c.index()
	c.checkTerms()
	if len(h.Leaps) == 0 {
		c.checkGaps()
	}
	for i := range h.Crons {
		ticks := c.account(&h.Crons[i])
		c.checkVerdicts(&h.Crons[i], ticks)
		c.checkOverlap(&h.Crons[i], ticks)
	}
	c.checkJobs()
	if !h.Unwitnessed {
		c.checkLines()
	}
	c.checkAcked()
	c.checkLimits()
	c.checkRates()
	c.checkStarts()
	c.checkTurns()
	slices.SortStableFunc(c.findings, func(a, b Finding) int { return cmp.Compare(a.Kind, b.Kind) })
	return c.findings
}

func (c *check) find(kind Kind, cron string, tick time.Time, format string, args ...any) {
	c.findings = append(c.findings, Finding{kind, cron, tick, fmt.Sprintf(format, args...)})
}

func (c *check) index() {
	for i := range c.Crons {
		c.crons[c.Crons[i].Name] = &c.Crons[i]
	}
	for i := range c.Rows {
		row := &c.Rows[i]
		if c.rows[keyOf(row.Cron, row.Tick)] != nil {
			c.find(Double, row.Cron, row.Tick, "stands twice in the ledger")
		}
		c.rows[keyOf(row.Cron, row.Tick)] = row
	}
	for _, entry := range c.Entries {
		k := keyOf(entry.Cron, entry.Tick)
		c.entries[k] = append(c.entries[k], entry)
	}
	for i := range c.Jobs {
		job := &c.Jobs[i]
		c.jobs[job.ID] = job
		if job.Cron != "" {
			k := keyOf(job.Cron, job.Tick)
			c.jobsOf[k] = append(c.jobsOf[k], job)
		}
	}
}

// tick is a due tick with its row and what was written there, in order.
type tick struct {
	at      time.Time
	row     *Row
	entries []Entry
}

// first is the entry of the decision.
func (t *tick) first() Entry { return t.entries[0] }

// fired is the entry with which the tick fired; false if it did not.
func (t *tick) fired() (Entry, bool) {
	for _, entry := range t.entries {
		if fires(entry.Verdict) {
			return entry, true
		}
	}
	return Entry{}, false
}

// fires says whether a tick with this verdict has a job.
func fires(verdict string) bool {
	return verdict == Fired || verdict == CaughtUp || verdict == Triggered
}

// account sets what was due against the ledger, and returns the ticks that stand
// there exactly once.
func (c *check) account(cron *Cron) []tick {
	due := cron.due()
	covered := map[int64][]*Row{}
	for i := range c.Rows {
		if row := &c.Rows[i]; row.Cron == cron.Name {
			c.cover(cron, row, due, covered)
		}
	}
	var ticks []tick
	for _, at := range due {
		switch rows := covered[at.UnixNano()]; len(rows) {
		case 0:
			c.find(Lost, cron.Name, at, "is not in the ledger")
		case 1:
			entries := c.entries[keyOf(cron.Name, rows[0].Tick)]
			if c.journalAgrees(rows[0], entries) {
				ticks = append(ticks, tick{at, rows[0], entries})
			}
		default:
			c.find(Double, cron.Name, at, "stands in %d rows of the ledger", len(rows))
		}
	}
	return ticks
}

// cover notes for which due ticks a row stands.
func (c *check) cover(cron *Cron, row *Row, due []time.Time, covered map[int64][]*Row) {
	last, count := row.Last, int64(0)
	if last.IsZero() {
		last = row.Tick
	}
	for _, at := range due {
		if !at.Before(row.Tick) && !at.After(last) {
			covered[at.UnixNano()] = append(covered[at.UnixNano()], row)
			count++
		}
	}
	for _, end := range []time.Time{row.Tick, last} {
		if covered[end.UnixNano()] == nil {
			c.find(Phantom, cron.Name, end, "stands in the ledger as %s and was not due", row.Verdict)
		}
	}
	if count != row.Count {
		c.find(WrongVerdict, cron.Name, row.Tick, "its row counts %d ticks up to %s, of which %d were due", row.Count, last.UTC().Format(time.RFC3339), count)
	}
}

// journalAgrees demands that the row is what was last written to it.
func (c *check) journalAgrees(row *Row, entries []Entry) bool {
	if len(entries) == 0 {
		c.find(Phantom, row.Cron, row.Tick, "stands in the ledger, and nobody wrote it")
		return false
	}
	if last := entries[len(entries)-1]; last.Verdict != row.Verdict {
		c.find(WrongVerdict, row.Cron, row.Tick, "is %s, and was written as %s", row.Verdict, last.Verdict)
	}
	return true
}
