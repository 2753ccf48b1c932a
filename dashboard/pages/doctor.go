package pages

import (
	"context"
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/web"
)

// doctorBody has the results of the checks.
type doctorBody struct {
	base
	Tabs []tab
	Node string
	// Running reports that there are no results yet.
	Running  bool
	Checked  format.Stamp
	Sentence string
	Rows     []findingRow
}

type findingRow struct {
	cluster.Finding

	Tone, Icon string
}

// findingTones are the tones and icons of the statuses, the worst first.
var findingTones = []struct{ status, tone, icon string }{{"fail", "bad", "cross"}, {"warn", "warn", "warn"}, {"ok", "ok", "check"}}

func (s *Pages) loadDoctor(ctx context.Context, _ *request) (body, error) {
	if s.Doctor == nil {
		return nil, web.Refuse(http.StatusNotFound, "This node has no checks.")
	}
	now := s.Now()
	found := s.Findings.Latest(ctx, now)
	b := &doctorBody{base: base{name: "Doctor", beat: pulse{Now: now.UnixMilli(), Login: s.Tokens != nil}}, Tabs: s.setupTabs("doctor"), Node: s.Self.NodeID, Running: found.At.IsZero()}
	if b.Running {
		return b, nil
	}
	b.Checked = format.NewStamp(format.ModeAgo, now, found.At)
	counts := map[string]int{}
	for _, tone := range findingTones {
		for _, f := range found.Value {
			if f.Status == tone.status {
				counts[f.Status]++
				b.Rows = append(b.Rows, findingRow{f, tone.tone, tone.icon})
			}
		}
	}
	b.Sentence = format.Plural(counts["fail"], "check fails", "checks fail") + ", " + format.Plural(counts["warn"], "warning", "warnings") + ", " + format.Plural(counts["ok"], "is ok", "are ok") + "."
	return b, nil
}
