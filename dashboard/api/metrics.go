package api

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/aggregator"
)

// maxPoints is the maximum number of windows in one answer.
const maxPoints = 50_000

// rangeAnswer is the history of a metric.
type rangeAnswer struct {
	Metric string       `json:"metric"`
	Step   string       `json:"step"`
	From   time.Time    `json:"from"`
	To     time.Time    `json:"to"`
	Series []rangedItem `json:"series"`
	// More reports that the answer omits points because there are too many.
	More bool `json:"more,omitempty"`
}

type rangedItem struct {
	Labels map[string]string `json:"labels"`
	Points []rangedPoint     `json:"points"`
}

type rangedPoint struct {
	At       time.Time `json:"at"`
	Value    float64   `json:"value"`
	Least    *float64  `json:"min,omitempty"`
	Greatest *float64  `json:"max,omitempty"`
	Last     float64   `json:"last"`
	Sum      *float64  `json:"sum,omitempty"`
	P50      *float64  `json:"p50,omitempty"`
	P90      *float64  `json:"p90,omitempty"`
	P99      *float64  `json:"p99,omitempty"`
}

// clusterMetrics serves the newest metrics that the metrics aggregator has recorded.
func (s *API) clusterMetrics(w http.ResponseWriter, r *http.Request) {
	recorded, err := s.ClusterMetrics(r.Context())
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	recorded.ServeHTTP(w, r)
}

func (s *API) apiMetricsRange(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	asked := historyQuery(q, s.Now())
	if q.Reject(w) {
		return
	}
	rows, err := s.Source.History.Range(r.Context(), asked)
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	answer := rangeAnswer{
		Metric: asked.Metric, Step: asked.Step.String(), From: asked.From, To: asked.To, Series: []rangedItem{},
		More: len(rows) > maxPoints,
	}
	for _, row := range rows[:min(len(rows), maxPoints)] {
		last := len(answer.Series) - 1
		if last < 0 || !maps.Equal(answer.Series[last].Labels, row.Labels) {
			answer.Series = append(answer.Series, rangedItem{Labels: row.Labels})
			last++
		}
		answer.Series[last].Points = append(answer.Series[last].Points, pointOf(row))
	}
	web.WriteJSON(w, http.StatusOK, answer)
}

func pointOf(row aggregator.Row) rangedPoint {
	p := rangedPoint{At: row.At, Value: row.Value, Last: row.Last}
	switch {
	case row.Histogram != nil:
		p.Sum = &row.Histogram.Sum
		p.P50, p.P90, p.P99 = row.Quantile(.5), row.Quantile(.9), row.Quantile(.99)
	case !row.Counter():
		p.Least, p.Greatest = &row.Least, &row.Greatest
	}
	return p
}

// historyQuery returns the query for the recorded metrics.
func historyQuery(q *web.Query, now time.Time) aggregator.Query {
	asked := aggregator.Query{
		Metric: q.Values.Get("metric"), Labels: map[string]string{},
		From: q.Time("from"), To: q.Time("to"), Limit: maxPoints + 1,
	}
	if asked.Metric == "" {
		q.Errs = append(q.Errs, errors.New("metric must name one of docs/metrics.md"))
	}
	for name, values := range q.Values {
		if label, ok := strings.CutPrefix(name, "label."); ok {
			asked.Labels[label] = values[0]
		}
	}
	if asked.To.IsZero() {
		asked.To = now
	}
	if asked.From.IsZero() {
		asked.From = asked.To.Add(-time.Hour)
	}
	if stretch := asked.To.Sub(asked.From); stretch <= 0 || stretch == math.MaxInt64 {
		q.Errs = append(q.Errs, errors.New("from must be before to"))
	} else {
		asked.Step = aggregator.StepFor(stretch)
	}
	setStep(q, &asked)
	return asked
}

func setStep(q *web.Query, asked *aggregator.Query) {
	text := q.Values.Get("step")
	if text == "" {
		return
	}
	for _, step := range aggregator.Steps {
		if step.String() == text {
			asked.Step = step
			return
		}
	}
	q.Errs = append(q.Errs, fmt.Errorf("step must be one of %v", aggregator.Steps))
}
