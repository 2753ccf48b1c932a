package alerts

import (
	"context"
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

	"github.com/forge-scheduler/forge/internal/alertstore"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// Rule is an alert of [[alerts]].
type Rule = alertstore.Rule

// needs is what a set of rules looks at.
type needs struct {
	// names of the metrics, as forge has them; all says that it is any.
	names map[string]bool
	all   bool
	// reach is how far back the furthest range goes.
	reach time.Duration
}

func needsOf(rules []Rule) needs {
	n := needs{names: map[string]bool{}}
	for _, rule := range rules {
		expr, err := parser.ParseExpr(rule.Condition)
		if err != nil {
			continue // it says so when it is evaluated
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

// histogramSuffixes are what Prometheus' text format adds to a histogram's name.
var histogramSuffixes = []string{"_bucket", "_sum", "_count"}

// baseName is the histogram that a series may be of.
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

// Judge says what is wrong with the texts of an alert, and what deserves a look
// about a condition that can be read: metrics and labels that the cluster's totals do
// not have, and what seems to mean something else. The totals are kept for so long.
func Judge(alert config.Alert, kept time.Duration) []config.Problem {
	j := &judgement{kept: kept}
	if expr, err := parser.ParseExpr(alert.Condition); err == nil { // else the configuration's own checks say so
		j.condition(expr)
	}
	j.templates("labels", alert.Labels)
	j.templates("annotations", alert.Annotations)
	return j.problems
}

// totals are the metrics as the cluster's totals have them, by name.
var totals = sync.OnceValue(func() map[string]metrics.Series {
	all := map[string]metrics.Series{}
	for _, s := range metrics.New("").Series() {
		if s.Name != metrics.NodeReportingName && s.Name != metrics.NodeClockName {
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

// warn is of the condition.
func (j *judgement) warn(message, want string) {
	j.problems = append(j.problems, config.Problem{Key: "condition", Message: message, Want: want, Warning: true})
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

func (j *judgement) condition(expr parser.Expr) {
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

// place says where in its condition something begins, as the configuration's checks do.
func place(of posrange.PositionRange) string {
	return fmt.Sprintf("at its character %d: ", int(of.Start)+1)
}

// perSecond warns of rate(x[5m]) > 5, which means five each second. Of what is
// calculated from a rate nobody can tell.
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

// summed is what an expression adds up, or compares.
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
