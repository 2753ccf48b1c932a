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
	// maxOccurrences bounds the number of series for which one condition may hold.
	maxOccurrences = 1000
)

var (
	errTooMany = fmt.Errorf("the condition holds for more than %d series: sum them, or narrow it", maxOccurrences)
	errSame    = errors.New("two series that the condition holds for have the same labels after those of the alert are set")
)

func newEngine(lookback time.Duration) *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{
		MaxSamples: maxSamples, Timeout: evaluateTimeout, LookbackDelta: lookback,
	})
}

// evaluate returns the series for which a rule's condition holds at an instant, as
// pending occurrences.
func evaluate(ctx context.Context, engine *promql.Engine, h *history, rule alerts.Rule, at time.Time) ([]alerts.Occurrence, error) {
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
	if len(vector) > maxOccurrences {
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
	occurrences := make([]alerts.Occurrence, 0, len(vector))
	for _, sample := range vector {
		occurrence := describe(ctx, rule, sample, at, lookUp)
		if seen[occurrence.Key()] {
			return nil, errSame
		}
		seen[occurrence.Key()] = true
		occurrences = append(occurrences, occurrence)
	}
	return occurrences, nil
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

// describe returns the occurrence for a series for which the condition holds. Labels and
// annotations are Prometheus' templates.
func describe(ctx context.Context, rule alerts.Rule, sample promql.Sample, at time.Time, lookUp template.QueryFunc) alerts.Occurrence {
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
	occurrence := alerts.Occurrence{
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
		occurrence.Annotations[name] = fill(text)
	}
	if occurrence.Annotations["summary"] == "" {
		occurrence.Annotations["summary"] = rule.Name
	}
	if occurrence.Annotations["description"] == "" {
		occurrence.Annotations["description"] = fmt.Sprintf("%s holds: its value is %s.", rule.Condition, strconv.FormatFloat(sample.F, 'g', 6, 64))
	}
	return occurrence
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

// changes are the changes that an evaluation makes to the open occurrences.
type changes struct {
	saved     []alerts.Occurrence // new, firing or resolved
	refreshed []alerts.Occurrence // same state, other values or texts
	forgotten []alerts.Occurrence // pending ones that ceased
}

// told reports whether receivers are notified of an occurrence. They are notified of the
// end of an occurrence that they know even while its alert is silenced: otherwise a pager's
// incident would stay open.
func told(i alerts.Occurrence) bool { return i.State != alerts.Pending && !i.Muted }

// judge compares the series for which conditions hold now with the open occurrences, by
// key. judged has the rules that could be evaluated, by name: the occurrences of other
// rules keep their state, and those of rules that no longer exist are resolved. An
// occurrence that starts firing while its alert is silenced is muted until the silence is
// over. early is the tolerance by which an evaluation may come early.
func judge(now time.Time, early time.Duration, open map[string]alerts.Occurrence, holds []alerts.Occurrence, judged map[string]alerts.Rule, gone, silent func(alert string) bool) changes {
	var c changes
	met := map[string]bool{}
	for _, occurrence := range holds {
		met[occurrence.Key()] = true
		before, known := open[occurrence.Key()]
		if known {
			occurrence.ID, occurrence.State = before.ID, before.State
			occurrence.ActiveAt, occurrence.FiredAt, occurrence.Muted = before.ActiveAt, before.FiredAt, before.Muted
		}
		wants := judged[occurrence.Alert].For.Std() - early
		if occurrence.State == alerts.Pending && now.Sub(occurrence.ActiveAt) >= wants {
			occurrence.State, occurrence.FiredAt, occurrence.Muted = alerts.Firing, now, true
		}
		occurrence.Muted = occurrence.Muted && silent(occurrence.Alert)
		c.note(before, occurrence)
	}
	for key, occurrence := range open {
		rule, evaluated := judged[occurrence.Alert]
		before := occurrence
		switch {
		case met[key] || !evaluated && !gone(occurrence.Alert):
		case occurrence.State == alerts.Pending:
			c.forgotten = append(c.forgotten, occurrence)
		case fireOn(&occurrence, now, rule.KeepFiringFor.Std(), early):
			occurrence.Muted = occurrence.Muted && silent(occurrence.Alert)
			c.note(before, occurrence)
		default:
			occurrence.State, occurrence.ResolvedAt, occurrence.KeptSince = alerts.Resolved, now, time.Time{}
			c.saved = append(c.saved, occurrence)
		}
	}
	return c
}

// note records the change of an occurrence, which may be new.
func (c *changes) note(before, occurrence alerts.Occurrence) {
	switch {
	case occurrence.State != before.State || occurrence.Muted != before.Muted:
		c.saved = append(c.saved, occurrence)
	case !sameFacts(before, occurrence):
		c.refreshed = append(c.refreshed, occurrence)
	}
}

// sameFacts reports whether there is nothing to refresh.
func sameFacts(a, b alerts.Occurrence) bool {
	return a.Value == b.Value && a.Severity == b.Severity && a.KeptSince.Equal(b.KeptSince) &&
		maps.Equal(a.Annotations, b.Annotations) && slices.Equal(a.Notify, b.Notify)
}

// fireOn reports whether an occurrence whose condition does not hold keeps firing, as with
// Prometheus' keep_firing_for: for a time from the first evaluation at which the
// condition did not hold.
func fireOn(occurrence *alerts.Occurrence, now time.Time, keep, early time.Duration) bool {
	if keep > 0 && occurrence.KeptSince.IsZero() {
		occurrence.KeptSince = now
		return true
	}
	return now.Sub(occurrence.KeptSince) < keep-early
}
