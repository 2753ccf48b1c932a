package assign

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const (
	// maxHolders bounds how many jobs are named that hold the places of a limit.
	maxHolders = 10
	// maxFullNodes bounds the nodes of which a limit is described.
	maxFullNodes = 50
)

// fullLimit is the limit that holds a job back. The zero value means that none does.
type fullLimit struct {
	jobstore.Limit

	// value is the job's value of the limit's key.
	value string
	// used is the number of used places. holders are some of the jobs that use them.
	used    int
	holders []int64
	// ahead is a job of several units before the job, for which the rate holds it back, or zero.
	ahead int64
	// units are those of the job in a rate, or of the one ahead. freeAt is when they may start, by the
	// clock of the database, in wait from now; zero if they never do.
	units  int
	freeAt time.Time
	wait   time.Duration
}

// readFullLimits reads which limit in the whole cluster holds the job back, and which ones do on
// the nodes.
func (f *facts) readFullLimits(ctx context.Context, db postgres.DB) error {
	l := newLimits()
	inForce, err := jobstore.New(db).Limits(ctx)
	if err != nil {
		return err
	}
	var members, available []*member
	for _, n := range f.nodes {
		members = append(members, f.member(n))
		if n.State != nodestore.Left && unavailability(n) == "" {
			available = append(available, members[len(members)-1])
		}
	}
	l.set(inForce, 0, members)
	if !l.isLimited(f.requirements) {
		return nil
	}
	jobs := []job{f.requirements}
	if err := l.read(ctx, db, jobs, f.now, 0, func(job) bool { return true }); err != nil {
		return err
	}
	if jobs[0], err = l.readHolds(ctx, db, jobs[0], available, f.inForce, f.now); err != nil {
		return err
	}
	if r, ok := l.full(jobs[0], l.groupsOf(jobs[0]), time.Now()); ok {
		if f.full, err = l.describe(ctx, db, jobs[0], r); err != nil {
			return err
		}
	}
	f.fullOn = map[string]fullLimit{}
	for _, m := range members {
		r, ok := l.fullOn(m, jobs[0])
		if !ok || len(f.fullOn) == maxFullNodes {
			continue
		}
		if f.fullOn[m.clientID], err = l.describe(ctx, db, jobs[0], r); err != nil {
			return err
		}
	}
	return nil
}

// describe reads what is said of a limit that holds the job back.
func (l *limits) describe(ctx context.Context, db postgres.DB, j job, r refusal) (full fullLimit, err error) {
	full = fullLimit{Limit: l.inForce[r.limitID], value: r.key, used: l.used(r.group), units: j.units()}
	if r.class == jobstore.ClassRate {
		if h, behind := l.holdOn(r.group, j); behind && r.ever {
			full.ahead, full.units = h.id, h.units
		}
		window := l.windows[r.group]
		if wait, ever := window.Wait(full.Limit, 0, full.units, window.Now); ever {
			full.freeAt, full.wait = window.Now.Add(wait), wait
		}
		return full, nil
	}
	full.holders, err = jobstore.New(db).Holders(ctx, r.places(), maxHolders)
	return full, err
}

// say describes the limit and who holds its places, or returns an empty text.
func (f fullLimit) say() string {
	if f.Most == 0 {
		return ""
	}
	what := "queue " + f.Name
	if f.Scope == jobstore.ScopeJob {
		what = "kind " + f.Name
	}
	switch f.Class() {
	case jobstore.ClassAll:
		return fmt.Sprintf("%s is at its global_limit of %d running jobs in the cluster%s", what, f.Most, f.sayHolders())
	case jobstore.ClassNode:
		return fmt.Sprintf("is at its max_workers_per_key of %d running jobs of %s %s%s", f.Most, what, sayKey(f.Key, f.value), f.sayHolders())
	case jobstore.ClassKey:
		return fmt.Sprintf("%s is at its limit_per_key of %d running jobs %s in the cluster%s", what, f.Most, sayKey(f.Key, f.value), f.sayHolders())
	}
	rate := fmt.Sprintf("its rate_limit of %d in %s", f.Most, explain.Span(f.Per))
	if f.Burst > 0 {
		rate += fmt.Sprintf(" and %d at once", f.Burst)
	}
	if f.Key != "" {
		rate += " " + sayKey(f.Key, f.value)
	}
	if f.freeAt.IsZero() {
		return fmt.Sprintf("it needs %d units, which %s never has within %s; change its weight or the limit", f.units, what, rate)
	}
	if f.ahead != 0 {
		return fmt.Sprintf("job %d is ahead of it and needs %d units of what %s may start at %s; the start of job %d is possible at %s, in %s",
			f.ahead, f.units, what, rate, f.ahead, explain.Instant(f.freeAt), explain.Span(f.wait))
	}
	start := "the next start is"
	if f.units > 1 {
		start = fmt.Sprintf("the next start of %d units is", f.units)
	}
	return fmt.Sprintf("%s is at %s; %s possible at %s, in %s", what, rate, start, explain.Instant(f.freeAt), explain.Span(f.wait))
}

// sayKey names the jobs with a value of a key.
func sayKey(key, value string) string {
	if value == "" {
		return "without " + key
	}
	return "with " + key + " = " + strconv.Quote(value)
}

func (f fullLimit) sayHolders() string {
	if len(f.holders) == 0 {
		return ""
	}
	ids := make([]string, len(f.holders))
	for i, id := range f.holders {
		ids[i] = strconv.FormatInt(id, 10)
	}
	if more := f.used - len(ids); more > 0 {
		ids = append(ids, fmt.Sprintf("%d more", more))
	}
	if len(ids) == 1 {
		return ": job " + ids[0] + " runs"
	}
	last := len(ids) - 1
	return ": jobs " + strings.Join(ids[:last], ", ") + " and " + ids[last] + " run"
}
