package api

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/metrics"
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
	P95      *float64  `json:"p95,omitempty"`
	P99      *float64  `json:"p99,omitempty"`
}

// metricRoutes returns the routes of the metrics and of the compactor.
func (s *API) metricRoutes() []route.Route {
	text := route.Reply{Status: http.StatusOK, Media: "text/plain"}
	failed := []route.Reply{{Status: http.StatusInternalServerError, Media: "text/plain"}}
	routes := []route.Route{
		get(s, "/api/v1/metrics/range", route.Operation{
			ID: "getMetricRange", Summary: "Read the recorded values of a metric",
			About: "Returns the recorded values of one metric, series by series. An answer has at most 50,000 points; `more` reports that some are missing.",
			Query: []route.Parameter{
				{Name: "metric", Kind: "string", About: "The metric's name.", Required: true},
				route.Instant("from", "By default an hour before to."), route.Instant("to", "By default now."),
				route.Text("step", "The width of the windows: 1m, 5m or 1h; by default what fits the range."),
				{Name: "label", Kind: "string", About: "label.NAME: only series whose label NAME has this value.", Family: true},
			},
		}, s.metricRange),
		get(s, "/api/v1/metrics/breakdown", route.Operation{
			ID: "getMetricBreakdown", Summary: "Divide the attempts of a time by cron, kind, node or queue",
			About: "Returns the crons, kinds, nodes or queues with the most attempts, each with its attempts, failures and the percentiles of how many seconds jobs waited and attempts took. The item `_other` is for all others. Like the rollups it is added up from, it begins at a whole window and ends with the last finished one.",
			Query: []route.Parameter{
				required(route.Among("by", "What to divide by.", metrics.Dimensions...)),
				route.Instant("from", "By default an hour before to."), route.Instant("to", "By default now."),
				route.Among("sort", "The order: most attempts, which is the default, most failures, longest p99 of wait_seconds or took_seconds, or by key.", aggregator.BreakdownOrders...),
				route.Bounded("limit", "How many keys at most", aggregator.MostKeys, aggregator.UsualKeys),
			},
		}, s.metricBreakdown),
		get(s, "/api/v1/compaction", route.Operation{
			ID: "getCompaction", Summary: "Show the passes of the log compactor and the sizes of the tables",
			About: "Returns the newest passes of the log compactor and the size of each table.", Query: []route.Parameter{route.LimitParameter},
		}, func(r *http.Request, q *web.Query) (compactor.Status, error) {
			return s.Source.Compaction.Status(r.Context(), q.Limit())
		}),
	}
	if s.Metrics != nil {
		routes = append(routes, route.Route{Path: "/metrics", Get: s.Metrics.ServeHTTP, Read: route.Viewer, Gets: &route.Operation{
			ID: "getMetrics", Summary: "The node's metrics, for Prometheus", Reply: text, Also: failed,
			About: "Returns the metrics of this node in the text format of Prometheus. Scrape every node.",
		}})
	}
	if s.ClusterMetrics != nil {
		routes = append(routes, route.Route{Path: "/metrics/cluster", Get: s.clusterMetrics, Read: route.Viewer, Gets: &route.Operation{
			ID: "getClusterMetrics", Summary: "The cluster's metrics, for Prometheus", Reply: text, Also: failed,
			About: "Returns the newest metrics that the metrics aggregator has recorded for the cluster, in the text format of Prometheus. Scrape any one node.",
		}})
	}
	return routes
}

// required makes a parameter mandatory.
func required(p route.Parameter) route.Parameter {
	p.Required = true
	return p
}

func (s *API) metricBreakdown(r *http.Request, q *web.Query) (aggregator.Breakdown, error) {
	by := q.Values.Get("by")
	if by == "" {
		q.Errs = append(q.Errs, fmt.Errorf("by must be one of %s", strings.Join(metrics.Dimensions, ", ")))
	}
	from, to := stretchOf(q, s.Now())
	keys := q.UpTo("limit", aggregator.UsualKeys, aggregator.MostKeys)
	if err := q.Err(); err != nil {
		return aggregator.Breakdown{}, err
	}
	return s.Source.History.Breakdown(r.Context(), by, from, to, keys, q.Values.Get("sort"))
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

func (s *API) metricRange(r *http.Request, q *web.Query) (answer rangeAnswer, err error) {
	asked := historyQuery(q, s.Now())
	if err := q.Err(); err != nil {
		return answer, err
	}
	rows, err := s.Source.History.Range(r.Context(), asked)
	answer = rangeAnswer{
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
	return answer, err
}

func pointOf(row aggregator.Row) rangedPoint {
	p := rangedPoint{At: row.At, Value: row.Value, Last: row.Last}
	switch {
	case row.Histogram != nil:
		p.Sum = &row.Histogram.Sum
		p.P50, p.P90, p.P95, p.P99 = row.Quantile(.5), row.Quantile(.9), row.Quantile(.95), row.Quantile(.99)
	case !row.Counter():
		p.Least, p.Greatest = &row.Least, &row.Greatest
	}
	return p
}

// historyQuery returns the query for the recorded metrics.
func historyQuery(q *web.Query, now time.Time) aggregator.Query {
	asked := aggregator.Query{
		Metric: q.Values.Get("metric"), Labels: map[string]string{},
		Limit: maxPoints + 1,
	}
	if asked.Metric == "" {
		q.Errs = append(q.Errs, errors.New("metric must name one of docs/metrics.md"))
	}
	for name, values := range q.Values {
		if label, ok := strings.CutPrefix(name, "label."); ok {
			asked.Labels[label] = values[0]
		}
	}
	asked.From, asked.To = stretchOf(q, now)
	asked.Step = aggregator.StepFor(asked.To.Sub(asked.From))
	setStep(q, &asked)
	return asked
}

// stretchOf returns the time of a query for recorded metrics.
func stretchOf(q *web.Query, now time.Time) (from, to time.Time) {
	from, to = q.Time("from"), q.Time("to")
	if to.IsZero() {
		to = now
	}
	if from.IsZero() {
		from = to.Add(-time.Hour)
	}
	if stretch := to.Sub(from); stretch <= 0 || stretch == math.MaxInt64 {
		q.Errs = append(q.Errs, errors.New("from must be before to"))
	}
	return from, to
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
