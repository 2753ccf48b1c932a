package main

import (
	"slices"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/chaos/checker"
)

var noon = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return noon.Add(time.Duration(seconds * float64(time.Second)))
}

// The made-up run: two crons, calm for 10 s, a load of 20 s, 20 s after it.
var during = span{began: at(0), from: at(10), to: at(30), until: at(50)}

const crons = 2

// well is a run on which the load has no effect.
func well() past {
	p := past{changes: []change{{at: at(-1), role: scheduler, term: 1, node: "a", renewed: at(-1)}}}
	for n := range 50 {
		for range crons {
			p.records = append(p.records, record{at(float64(n)), at(float64(n) + 0.01), checker.Fired, 1})
		}
		p.jobs = append(p.jobs, job{at(float64(n)), at(float64(n) + 0.1)})
	}
	for renewed := -0.25; renewed < 50; renewed += 0.75 {
		p.changes = append(p.changes, change{at(renewed), scheduler, 1, "a", at(renewed)})
	}
	return p
}

// Each of what the judgement is about is broken in turn, and seen.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(*past)
		want  func(timing) bool
	}{
		"all is well": {func(*past) {}, func(t timing) bool {
			return t.due == 40 && t.share == 1 && t.late.worst == 10*time.Millisecond && t.terms == 0 && t.others == 0 &&
				t.idle == 0 && t.missed == 0 && t.recover == 0 && t.open == 0 && t.verdicts[checker.Fired] == 40
		}},
		"ticks are recorded when the load is over": {func(p *past) {
			for i := range p.records {
				if r := &p.records[i]; !r.due.Before(at(15)) && r.due.Before(at(30)) {
					r.at = at(31.5)
				}
			}
		}, func(t timing) bool { return t.share == 0.0 && t.recover == 1500*time.Millisecond && t.open == 0 }},
		"half of a window is late": {func(p *past) {
			for i := range p.records {
				if r := &p.records[i]; !r.due.Before(at(15)) && r.due.Before(at(20)) {
					r.at = at(29)
				}
			}
		}, func(t timing) bool { return t.share == 0.5 && t.recover == 0 }},
		"a tick is not recorded": {
			func(p *past) { p.records = slices.Delete(p.records, 40, 41) },
			func(t timing) bool { return t.open == 1 },
		},
		"a term begins and records": {func(p *past) {
			p.changes = append(p.changes, change{at(50), scheduler, 2, "b", at(50)})
			p.records[99].term, p.records[99].at = 2, at(50.5)
		}, func(t timing) bool {
			return t.terms == 1 && t.idle == 0 && t.takeover >= 500*time.Millisecond && t.recover == 20*time.Second
		}},
		"a term records nothing": {func(p *past) {
			p.changes = append(p.changes[:15], change{at(12), scheduler, 2, "b", at(12)}, change{at(25), scheduler, 3, "c", at(25)})
			for i := range p.records {
				if !p.records[i].at.Before(at(12)) {
					p.records[i].term = 3
				}
			}
		}, func(t timing) bool { return t.terms == 2 && t.idle == 1 && t.takeover == 13*time.Second }},
		"another role's term begins": {func(p *past) {
			p.changes = append(p.changes, change{at(5), "log_compactor", 6, "a", at(5)}, change{at(20), "log_compactor", 7, "b", at(20)})
		}, func(t timing) bool { return t.terms == 0 && t.others == 1 }},
		"renewals are missed": {func(p *past) {
			p.changes = slices.DeleteFunc(p.changes, func(c change) bool { return c.at.After(at(12)) && c.at.Before(at(14)) })
		}, func(t timing) bool {
			return t.missed == 2 && t.silence == 2250*time.Millisecond && t.recover == 0
		}},
		"renewals are missed after the load": {func(p *past) {
			p.changes = slices.DeleteFunc(p.changes, func(c change) bool { return c.at.After(at(32)) && c.at.Before(at(35)) })
		}, func(t timing) bool { return t.missed == 0 && t.recover == 5*time.Second }},
		"a job ends late": {
			func(p *past) { p.jobs[20].ended = at(37) },
			func(t timing) bool { return t.recover == 7*time.Second },
		},
		"a job does not end": {
			func(p *past) { p.jobs[20].ended = time.Time{} },
			func(t timing) bool { return t.recover == 20*time.Second },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := well()
			test.spoil(&p)
			if got := judge(p, crons, during, 10*time.Second); !test.want(got) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestPromises(t *testing.T) {
	t.Parallel()
	kept := func() outcome { return outcome{timing: timing{share: 0.5, recover: time.Minute}} }
	if o := kept(); len(o.promises()) != 0 {
		t.Errorf("%v", o.promises())
	}
	for name, spoil := range map[string]func(*outcome){
		"share":      func(o *outcome) { o.share = 0.49 },
		"recovery":   func(o *outcome) { o.recover = time.Minute + time.Second },
		"idle":       func(o *outcome) { o.idle = 1 },
		"open":       func(o *outcome) { o.open = 1 },
		"exits":      func(o *outcome) { o.exits = 1 },
		"lost":       func(o *outcome) { o.findings = []checker.Finding{{Kind: checker.Lost}} },
		"unfinished": func(o *outcome) { o.findings = []checker.Finding{{Kind: checker.AckedNotTerminal}} },
		"wrong":      func(o *outcome) { o.findings = []checker.Finding{{Kind: checker.WrongVerdict}} },
	} {
		o := kept()
		if spoil(&o); len(o.promises()) != 1 {
			t.Errorf("%s: %v", name, o.promises())
		}
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from, to float64
		want     int
	}{{0, 1, 1}, {0.5, 1, 0}, {0.5, 1.5, 1}, {0, 10.001, 11}, {3, 2, 0}} {
		if got := seconds(at(test.from), at(test.to)); got != test.want {
			t.Errorf("[%v, %v): %d, want %d", test.from, test.to, got, test.want)
		}
	}
}
