package alerting

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// needs describes the metrics that a set of rules reads.
type needs struct {
	// names has the metrics by forge's names; all means any metric.
	names map[string]bool
	all   bool
	// reach is the longest time that a range goes back.
	reach time.Duration
}

func needsOf(rules []alerts.Rule) needs {
	n := needs{names: map[string]bool{}}
	for _, rule := range rules {
		expr, err := parser.ParseExpr(rule.Condition)
		if err != nil {
			continue // its evaluation reports the error
		}
		n.reach = max(n.reach, reach(expr))
		for _, selector := range parser.ExtractSelectors(expr) {
			name := nameOf(selector)
			n.all = n.all || name == ""
			n.names[name] = true
			n.names[baseName(name)] = true
		}
	}
	return n
}

func (n needs) want(name string) bool { return n.all || n.names[name] }

func nameOf(selector []*labels.Matcher) string {
	for _, m := range selector {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return ""
}

// histogramSuffixes are the suffixes that Prometheus' text format adds to a histogram's
// name.
var histogramSuffixes = []string{"_bucket", "_sum", "_count"}

// baseName returns the name of the histogram that a series may belong to.
func baseName(name string) string {
	for _, suffix := range histogramSuffixes {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			return base
		}
	}
	return name
}

// reach adds up, from the outermost to the innermost, ranges, offsets and the
// ranges of sub-queries.
func reach(expr parser.Expr) time.Duration {
	far := time.Duration(0)
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		back := selector.OriginalOffset
		for _, outer := range path {
			switch outer := outer.(type) {
			case *parser.MatrixSelector:
				back += outer.Range
			case *parser.SubqueryExpr:
				back += outer.Range + outer.OriginalOffset
			}
		}
		far = max(far, back)
		return nil
	})
	return far
}

// Judge returns the errors in the condition and the texts of an alert, and warnings about a
// valid condition: metrics and labels that the cluster's totals do not have, and
// expressions that probably mean something else. kept is the retention of the totals.
func (Engine) Judge(alert config.Alert, kept time.Duration) []config.Problem {
	j := &judgement{kept: kept}
	j.condition(alert.Condition)
	j.templates("labels", alert.Labels)
	j.templates("annotations", alert.Annotations)
	return j.problems
}

// totals has the metrics as they are in the cluster's totals, by name.
var totals = sync.OnceValue(func() map[string]metrics.Series {
	all := map[string]metrics.Series{}
	for _, s := range metrics.New("").Series() {
		if s.Name != metrics.NodeReportingName && s.Name != metrics.NodeClockName && s.Name != metrics.NodeUsedName {
			s.Labels = slices.DeleteFunc(slices.Clone(s.Labels), func(l string) bool { return l == "node_id" })
		}
		if s.Type != "histogram" {
			all[s.Name] = s
			continue
		}
		for _, suffix := range histogramSuffixes {
			part := metrics.Series{Name: s.Name + suffix, Labels: s.Labels}
			if suffix == "_bucket" {
				part.Labels = append(slices.Clone(s.Labels), labels.BucketLabel)
			}
			all[part.Name] = part
		}
	}
	return all
})

type judgement struct {
	kept     time.Duration
	problems []config.Problem
}

// warn adds a warning about the condition.
func (j *judgement) warn(message, want string) {
	j.problems = append(j.problems, config.Problem{Key: "condition", Message: message, Want: want, Warning: true})
}

// wrong adds an error in the condition.
func (j *judgement) wrong(text, message, want string) {
	j.problems = append(j.problems, config.Problem{Key: "condition", Message: message, Got: config.Quote(text), Want: want})
}

// parseError returns an error of the parser with its position in the condition.
func parseError(err error) string {
	list, ok := errors.AsType[parser.ParseErrors](err)
	if !ok || len(list) == 0 {
		return err.Error()
	}
	return place(list[0].PositionRange) + list[0].Err.Error()
}

func (j *judgement) templates(section string, texts map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		err := expander(context.Background(), "", texts[name], nil, time.Time{}, nil).ParseTest()
		if err == nil {
			continue
		}
		text := err.Error() // template: : where: what
		j.problems = append(j.problems, config.Problem{
			Key: section + "." + name, Message: text[strings.LastIndex(text, ": ")+2:], Want: "a template of Prometheus",
		})
	}
}

// condition checks the condition of an alert. An empty one is an error of the file.
func (j *judgement) condition(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	expr, err := parser.ParseExpr(text)
	if err != nil {
		j.wrong(text, parseError(err), "an expression of PromQL")
		return
	}
	if kind := expr.Type(); kind != parser.ValueTypeVector && kind != parser.ValueTypeScalar {
		j.wrong(text, "a "+parser.DocumentedType(kind), "an instant vector: a comparison such as x > 5")
		return
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			j.selector(node)
		case *parser.BinaryExpr:
			j.perSecond(node)
		}
		return nil
	})
	if back := reach(expr); back > j.kept {
		j.warn(fmt.Sprintf("its ranges reach back %s, and the cluster's totals are kept for %s", config.Duration(back), config.Duration(j.kept)), "shorter ranges, or a longer retention.metrics")
	}
}

func (j *judgement) selector(v *parser.VectorSelector) {
	name := nameOf(v.LabelMatchers)
	if name == "" {
		return
	}
	at := place(v.PosRange)
	series, ok := totals()[name]
	if !ok {
		j.warn(at+"the cluster has no metric "+name, config.Nearest(name, slices.Sorted(maps.Keys(totals()))))
		return
	}
	for _, m := range v.LabelMatchers {
		if m.Name != model.MetricNameLabel && !slices.Contains(series.Labels, m.Name) {
			j.warn(at+"the cluster's "+name+" has no label "+m.Name, "one of "+strings.Join(series.Labels, ", "))
		}
	}
}

// place returns a position in the condition in the format of the configuration's checks.
func place(of posrange.PositionRange) string {
	return fmt.Sprintf("at its character %d: ", int(of.Start)+1)
}

// perSecond warns of rate(x[5m]) > 5, which means five per second. It does not check
// values calculated from a rate.
func (j *judgement) perSecond(b *parser.BinaryExpr) {
	number, ok := b.RHS.(*parser.NumberLiteral)
	if !ok || !b.Op.IsComparisonOperator() || number.Val < 1 {
		return
	}
	call, ok := summed(b.LHS).(*parser.Call)
	if !ok || call.Func.Name != "rate" && call.Func.Name != "irate" {
		return
	}
	suggested := "increase" + strings.TrimPrefix(call.String(), call.Func.Name)
	j.warn(fmt.Sprintf("%s%s is per second: %s %s %v means that many each second",
		place(call.PosRange), call.Func.Name, call.String(), b.Op, number.Val),
		fmt.Sprintf("%s %s %v, if it is meant over the whole range", suggested, b.Op, number.Val))
}

// summed returns an expression without the parentheses and aggregations around it.
func summed(expr parser.Expr) parser.Expr {
	switch expr := expr.(type) {
	case *parser.ParenExpr:
		return summed(expr.Expr)
	case *parser.AggregateExpr:
		return summed(expr.Expr)
	default:
		return expr
	}
}
