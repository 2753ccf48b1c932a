package config

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/forge-scheduler/forge/internal/limitkey"
)

// LimitPerKey limits how many jobs with the same value of a key run at once, in the whole
// cluster or on each node. Jobs without the value share a limit of their own.
type LimitPerKey struct {
	// Key says where a job has the value, as package limitkey reads it.
	Key string `toml:"key,omitempty"`
	// Limit is the most such jobs that run at once.
	Limit int `toml:"limit,omitzero" min:"1" max:"10000"`
}

// MaxWeight is the most units of a rate that a job may need.
const MaxWeight = 1_000_000

// RateLimit limits how many units start in any window of a length in the whole cluster: of all
// jobs, or of those with the same value of a key. A job is one unit unless it has a weight.
type RateLimit struct {
	// Limit is the most units that start in a window.
	Limit int `toml:"limit,omitzero" min:"1" max:"1000000"`
	// Per is the length of a window.
	Per Duration `toml:"per,omitzero" min:"1s" max:"1d"`
	// Key says where a job has the value, as package limitkey reads it; empty: the rate is of
	// all jobs.
	Key string `toml:"key,omitempty"`
	// Burst is the most units that start in a window of the length per * burst / limit; 0: as
	// many as in a whole one.
	Burst int `toml:"burst,omitzero" min:"1" max:"1000000"`
}

// capacity is the most units that may start at once.
func (r RateLimit) capacity() int {
	if r.Burst > 0 {
		return r.Burst
	}
	return r.Limit
}

// checkRateLimit checks the rate of the queue or job at a path.
func (l *loader) checkRateLimit(path string, rate RateLimit) {
	path += ".rate_limit"
	if rate == (RateLimit{}) && !l.has(path) || !l.ok(path) {
		return
	}
	if rate.Key != "" || l.has(path+".key") {
		l.checkKey(path, rate.Key)
	}
	if rate.Limit == 0 && l.ok(path+".limit") {
		l.wrongKey(path, "no limit", "limit = 100, for example")
	}
	if rate.Per == 0 && l.ok(path+".per") {
		l.wrongKey(path, "no window", `per = "1m", for example`)
	}
	if where := path + ".burst"; rate.Limit > 0 && rate.Burst > rate.Limit && l.ok(where) && l.ok(path+".limit") {
		l.wrong(where, "more than the limit", strconv.Itoa(rate.Burst), fmt.Sprintf("at most %d", rate.Limit))
	}
}

// checkWeight refuses a weight with which no job would ever start.
func (l *loader) checkWeight(path string, job Job) {
	if job.Weight == 0 || !l.ok(path) {
		return
	}
	own, queue := job.RateLimit, l.cfg.Queues[job.Queue].RateLimit
	for _, rate := range []struct {
		of string
		RateLimit
	}{{"the job", own}, {"its queue", queue}} {
		if most := rate.capacity(); most > 0 && job.Weight > most {
			l.wrong(path, "more units than the rate_limit of "+rate.of+" ever has at once", strconv.Itoa(job.Weight), fmt.Sprintf("at most %d", most))
			return
		}
	}
	if own.Limit == 0 && queue.Limit == 0 {
		l.warn(path, "without effect: neither the job nor its queue has a rate_limit", "one, or no weight")
	}
}

// checkLimitPerKey checks a limit by key at a path. most is the limit that applies beside it, at
// another path; zero: none.
func (l *loader) checkLimitPerKey(path string, limit LimitPerKey, beside string, most int) {
	if limit == (LimitPerKey{}) && !l.has(path) || !l.ok(path) {
		return
	}
	l.checkKey(path, limit.Key)
	switch where := path + ".limit"; {
	case !l.ok(where):
	case limit.Limit == 0:
		l.wrongKey(path, "no limit", `limit = 1, for example`)
	case most > 0 && limit.Limit > most && l.ok(join(parent(path), beside)):
		l.warn(where, fmt.Sprintf("never reached: %s is %d", beside, most), "at most that")
	}
}

// checkKey checks the key in the table at a path.
func (l *loader) checkKey(path, key string) {
	if where := path + ".key"; key != "" || l.has(where) || !l.ok(where) {
		l.checkKeyText(where, key)
		return
	}
	l.wrongKey(path, "no key", `key = "args.tenant", for example`)
}

// checkKeyText checks the text of a key.
func (l *loader) checkKeyText(where, key string) {
	_, err := limitkey.Parse(key)
	if problem, wrong := errors.AsType[*limitkey.Error](err); wrong && l.ok(where) {
		l.wrong(where, problem.Problem, strconv.Quote(clip(key)), problem.Want)
	}
}
