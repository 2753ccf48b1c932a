package pages

import (
	"context"
	"errors"
	"slices"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/web"
)

var errNoSuchSpan = errors.New("span must be 1h, 6h, 24h, 7d or 30d")

type chartsBody struct {
	base
	charts.Drawing

	Span  charts.Stretch
	Spans []charts.Stretch
}

func (s *Pages) loadCharts(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	shown := charts.Stretches[0]
	if name := req.Values.Get("span"); name != "" {
		i := slices.IndexFunc(charts.Stretches, func(s charts.Stretch) bool { return s.Name == name })
		if i < 0 {
			return nil, web.BadRequest(errNoSuchSpan)
		}
		shown = charts.Stretches[i]
	}
	drawn, err := s.chartPages[shown.Name].Get(facts.now, func() (charts.Drawing, error) { return charts.DrawMetrics(ctx, s.Source.History, shown, facts.now) })
	if err != nil {
		return nil, err
	}
	return &chartsBody{base: base{name: "Metrics", beat: s.pulseOf(facts)}, Drawing: drawn, Span: shown, Spans: charts.Stretches}, nil
}
