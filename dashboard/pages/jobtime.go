package pages

import (
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// usualJobs is the width of the window of the jobs until the reader selects one.
const usualJobs = 24 * time.Hour

// timeKeys are the keys of the terms that select jobs by time.
var timeKeys = []string{"since", "until"}

// timedFilter returns the filter with the window of the address, if it has one, in place of
// its terms about time.
func (s *Pages) timedFilter(req *request, f jobstore.Filter, now time.Time) (jobstore.Filter, error) {
	if !req.Values.Has("span") && !req.Values.Has("from") && !req.Values.Has("to") {
		return f, nil
	}
	w, err := s.window(req, now, usualJobs)
	if err != nil {
		return f, err
	}
	since, until := w.From.Format(time.RFC3339Nano), w.To.Format(time.RFC3339Nano)
	if w.Span != 0 {
		since = window.Name(w.Span)
	}
	if w.Live {
		until = ""
	}
	terms := slices.DeleteFunc(slices.Clone(f.Where.Terms()), func(t filter.Term) bool { return slices.Contains(timeKeys, t.Key) })
	for i, value := range []string{since, until} {
		if value != "" {
			parsed, err := filter.Parse(timeKeys[i]+":"+value, jobstore.Keys)
			if err != nil {
				return f, web.BadRequest(err)
			}
			terms = append(terms, parsed.Terms()...)
		}
	}
	f.Where = filter.New(terms...)
	return f, nil
}

// jobTime returns the control of the jobs' time. It shows what the terms of the filter select.
func (s *Pages) jobTime(req *request, f jobstore.Filter, now time.Time) (timeControl, error) {
	zoned, err := window.Parse(map[string][]string{"zone": req.Values["zone"]}, now, usualJobs)
	if err != nil {
		return timeControl{}, web.BadRequest(err)
	}
	w, timed := windowOf(f.Where, zoned, now)
	f.Where = filter.New(slices.DeleteFunc(slices.Clone(f.Where.Terms()), func(t filter.Term) bool { return slices.Contains(timeKeys, t.Key) })...)
	c := s.timeControl(w, now, "/jobs", "", longSpans, []string{"state", f.State, "kind", f.Kind, "queue", f.Queue, "cron", f.Cron, "filter", f.Where.String(), "sort", string(f.Sort)})
	if !timed {
		c.anyTime()
	}
	return c, nil
}

// windowOf returns the window that the terms select, if they select one that the control can
// show.
func windowOf(where *filter.Filter, usual window.Window, now time.Time) (w window.Window, timed bool) {
	since, until := where.Of("since"), where.Of("until")
	switch {
	case len(since) == 1 && len(until) == 0 && since[0].Span >= window.Shortest && since[0].Span <= window.Longest:
		return usual.Last(since[0].Span, now), true
	case len(since) == 1 && len(until) == 0 && !since[0].At.IsZero() && since[0].At.Before(now):
		return usual.Between(since[0].At, now), true
	case len(since) == 1 && len(until) == 1 && !since[0].At.IsZero() && since[0].At.Before(until[0].At):
		return usual.Between(since[0].At, until[0].At), true
	default:
		return usual, false
	}
}
