package alerting

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"

	"github.com/forge-scheduler/forge/internal/alerts"
)

const (
	// maxSamples bounds the samples that one condition may load.
	maxSamples = 5_000_000
	// evaluateTimeout bounds the evaluation of one condition.
	evaluateTimeout = 10 * time.Second
	// maxIncidents bounds the number of series for which one condition may hold.
	maxIncidents = 1000
)

var (
	errTooMany = fmt.Errorf("the condition holds for more than %d series: sum them, or narrow it", maxIncidents)
	errSame    = errors.New("two series that the condition holds for have the same labels after those of the alert are set")
)

func newEngine(lookback time.Duration) *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{
		MaxSamples: maxSamples, Timeout: evaluateTimeout, LookbackDelta: lookback,
	})
}

// evaluate returns the series for which a rule's condition holds at an instant, as
// pending incidents.
func evaluate(ctx context.Context, engine *promql.Engine, h *history, rule alerts.Rule, at time.Time) ([]alerts.Incident, error) {
	query, err := engine.NewInstantQuery(ctx, h, nil, rule.Condition, at)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil {
		return nil, result.Err
	}
	vector, err := vectorOf(result)
	if err != nil {
		return nil, err
	}
	if len(vector) > maxIncidents {
		return nil, errTooMany
	}
	lookUp := func(ctx context.Context, text string, at time.Time) (promql.Vector, error) {
		query, err := engine.NewInstantQuery(ctx, h, nil, text, at)
		if err != nil {
			return nil, err
		}
		defer query.Close()
		return vectorOf(query.Exec(ctx))
	}
	seen := map[string]bool{}
	incidents := make([]alerts.Incident, 0, len(vector))
	for _, sample := range vector {
		incident := describe(ctx, rule, sample, at, lookUp)
		if seen[incident.Key()] {
			return nil, errSame
		}
		seen[incident.Key()] = true
		incidents = append(incidents, incident)
	}
	return incidents, nil
}

// vectorOf copies a result, whose memory the engine reuses.
func vectorOf(result *promql.Result) (promql.Vector, error) {
	if result.Err != nil {
		return nil, result.Err
	}
	switch found := result.Value.(type) {
	case promql.Vector:
		return append(promql.Vector(nil), found...), nil
	case promql.Scalar:
		return promql.Vector{{T: found.T, F: found.V}}, nil
	default:
		return nil, fmt.Errorf("the condition is a %s, not an instant vector", result.Value.Type())
	}
}

// describe returns the incident for a series for which the condition holds. Labels and
// annotations are Prometheus' templates.
func describe(ctx context.Context, rule alerts.Rule, sample promql.Sample, at time.Time, lookUp template.QueryFunc) alerts.Incident {
	own := map[string]string{}
	sample.Metric.Range(func(l labels.Label) { own[l.Name] = l.Value })
	delete(own, model.MetricNameLabel)
	data := template.AlertTemplateData(maps.Clone(own), nil, "", promql.Sample{F: sample.F})
	fill := func(text string) string {
		filled, err := expander(ctx, rule.Name, text, data, at, lookUp).Expand()
		if err != nil {
			return fmt.Sprintf("<error expanding template: %v>", err)
		}
		return filled
	}
	incident := alerts.Incident{
		Alert: rule.Name, Labels: own, Annotations: map[string]string{}, Severity: rule.Severity, Notify: rule.Notify,
		State: alerts.Pending, Value: finite(sample.F), ActiveAt: at,
	}
	for name, text := range rule.Labels {
		own[name] = fill(text)
	}
	own[model.AlertNameLabel] = rule.Name
	if _, set := own["severity"]; !set && rule.Severity != "" {
		own["severity"] = rule.Severity
	}
	for name, text := range rule.Annotations {
		incident.Annotations[name] = fill(text)
	}
	if incident.Annotations["summary"] == "" {
		incident.Annotations["summary"] = rule.Name
	}
	if incident.Annotations["description"] == "" {
		incident.Annotations["description"] = fmt.Sprintf("%s holds: its value is %s.", rule.Condition, strconv.FormatFloat(sample.F, 'g', 6, 64))
	}
	return incident
}

// finite returns a value that JSON can represent.
func finite(value float64) float64 {
	switch {
	case math.IsNaN(value):
		return 0
	case math.IsInf(value, 0):
		return math.Copysign(math.MaxFloat64, value)
	default:
		return value
	}
}

// expander returns the expander of a template, with the functions that Prometheus has in
// its rules.
func expander(ctx context.Context, alert, text string, data any, at time.Time, lookUp template.QueryFunc) *template.Expander {
	const names = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
	return template.NewTemplateExpander(ctx, names+text, "alert "+alert, data,
		model.TimeFromUnixNano(at.UnixNano()), lookUp, &url.URL{}, nil)
}

// changes are the changes that an evaluation makes to the open incidents.
type changes struct {
	saved     []alerts.Incident // new, firing or resolved
	refreshed []alerts.Incident // same state, other values or texts
	forgotten []alerts.Incident // pending ones that ceased
}

// told reports whether receivers are notified of an incident. They are notified of the
// end of an incident that they know even while its alert is silenced: otherwise a pager's
// incident would stay open.
func told(i alerts.Incident) bool { return i.State != alerts.Pending && !i.Muted }

// judge compares the series for which conditions hold now with the open incidents, by
// key. judged has the rules that could be evaluated, by name: the incidents of other
// rules keep their state, and those of rules that no longer exist are resolved. An
// incident that starts firing while its alert is silenced is muted until the silence is
// over. early is the tolerance by which an evaluation may come early.
func judge(now time.Time, early time.Duration, open map[string]alerts.Incident, holds []alerts.Incident, judged map[string]alerts.Rule, gone, silent func(alert string) bool) changes {
	var c changes
	met := map[string]bool{}
	for _, incident := range holds {
		met[incident.Key()] = true
		before, known := open[incident.Key()]
		if known {
			incident.ID, incident.State = before.ID, before.State
			incident.ActiveAt, incident.FiredAt, incident.Muted = before.ActiveAt, before.FiredAt, before.Muted
		}
		wants := judged[incident.Alert].For.Std() - early
		if incident.State == alerts.Pending && now.Sub(incident.ActiveAt) >= wants {
			incident.State, incident.FiredAt, incident.Muted = alerts.Firing, now, true
		}
		incident.Muted = incident.Muted && silent(incident.Alert)
		c.note(before, incident)
	}
	for key, incident := range open {
		rule, evaluated := judged[incident.Alert]
		before := incident
		switch {
		case met[key] || !evaluated && !gone(incident.Alert):
		case incident.State == alerts.Pending:
			c.forgotten = append(c.forgotten, incident)
		case fireOn(&incident, now, rule.KeepFiringFor.Std(), early):
			incident.Muted = incident.Muted && silent(incident.Alert)
			c.note(before, incident)
		default:
			incident.State, incident.ResolvedAt, incident.KeptSince = alerts.Resolved, now, time.Time{}
			c.saved = append(c.saved, incident)
		}
	}
	return c
}

// note records the change of an incident, which may be new.
func (c *changes) note(before, incident alerts.Incident) {
	switch {
	case incident.State != before.State || incident.Muted != before.Muted:
		c.saved = append(c.saved, incident)
	case !sameFacts(before, incident):
		c.refreshed = append(c.refreshed, incident)
	}
}

// sameFacts reports whether there is nothing to refresh.
func sameFacts(a, b alerts.Incident) bool {
	return a.Value == b.Value && a.Severity == b.Severity && a.KeptSince.Equal(b.KeptSince) &&
		maps.Equal(a.Annotations, b.Annotations) && slices.Equal(a.Notify, b.Notify)
}

// fireOn reports whether an incident whose condition does not hold keeps firing, as with
// Prometheus' keep_firing_for: for a time from the first evaluation at which the
// condition did not hold.
func fireOn(incident *alerts.Incident, now time.Time, keep, early time.Duration) bool {
	if keep > 0 && incident.KeptSince.IsZero() {
		incident.KeptSince = now
		return true
	}
	return now.Sub(incident.KeptSince) < keep-early
}
