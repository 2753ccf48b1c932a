package pages

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/web"
)

type chartsBody struct {
	base
	charts.Drawing

	Time timeControl
}

func (s *Pages) loadCharts(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	shown, err := s.window(req, facts.now, time.Hour)
	if err != nil {
		return nil, err
	}
	drawn, err := s.chartPages.Get(web.Encode(shown.Pairs()...), facts.now, func() (charts.Drawing, error) {
		return charts.DrawMetrics(ctx, s.Source.History, shown, facts.now)
	})
	if err != nil {
		return nil, err
	}
	return &chartsBody{
		base: base{name: "Metrics", beat: s.pulseOf(facts)}, Drawing: drawn,
		Time: s.timeControl(shown, facts.now, "/charts", "", charts.MetricSpans, nil),
	}, nil
}
