package main

import (
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// workload is a set of crons that are due once a period.
type workload struct {
	Crons  int   `json:"crons"`
	Period int64 `json:"period"` // seconds
	// Spread gives the crons different seconds of the period; else all have one.
	Spread bool `json:"spread"`
	// Within spreads them within the second too: in forge by jitter, in River,
	// which has none but knows fractions of seconds, by the schedule.
	Within bool `json:"within"`
	// Overlap is forge's policy; empty means the default, skip.
	Overlap string `json:"overlap"`
}

// jitter is what forge spreads ticks by: below the shortest interval.
const jitter = 999 * time.Millisecond

// phase is the second of the period at which a cron is due.
func (w workload) phase(cron int) int64 {
	if !w.Spread {
		return 0
	}
	return int64(cron) % w.Period
}

// next is the first tick after an instant.
func (w workload) next(cron int, after time.Time) time.Time {
	phase := w.phase(cron)
	periods := (after.Unix()-phase)/w.Period + 1
	return time.Unix(periods*w.Period+phase, 0).UTC()
}

// due counts the ticks in (from, until], which are whole seconds.
func (w workload) due(from, until time.Time) int64 {
	var total int64
	for cron := range w.Crons {
		for at := w.next(cron, from); !at.After(until); at = w.next(cron, at) {
			total++
		}
	}
	return total
}

// spec is a cron of forge's, without what the configuration's defaults say.
func (w workload) spec(cron int) cronstore.Spec {
	spec := cronstore.Spec{
		Schedule: fmt.Sprintf("@every %ds/%ds", w.Period, w.phase(cron)), Timezone: "UTC", Overlap: w.Overlap,
		Job: noop{}.Kind(), Args: fmt.Appendf(nil, `{"cron":%d}`, cron), Queue: "default", Priority: 1, MaxAttempts: 25,
	}
	if w.Within {
		spec.Jitter = config.Duration(jitter)
	}
	return spec
}

func cronName(cron int) string { return fmt.Sprintf("cron-%06d", cron) }

// offset is where within its second River's job is due.
func (w workload) offset(cron int) time.Duration {
	if !w.Within {
		return 0
	}
	return time.Duration(cron) * time.Second / time.Duration(w.Crons)
}

// phased is a cron of the workload as River's schedule.
type phased struct {
	workload workload
	cron     int
}

// Next is part of river.PeriodicSchedule.
func (p phased) Next(after time.Time) time.Time {
	offset := p.workload.offset(p.cron)
	return p.workload.next(p.cron, after.Add(-offset)).Add(offset)
}
