package alerts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/forge-scheduler/forge/internal/alertstore"
	"github.com/forge-scheduler/forge/internal/config"
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

// Problem is what is wrong with an alert, or deserves a look.
type Problem = alertstore.Problem

// Series is what a metric is: its name, its kind and its labels in the cluster's
// totals.
type Series struct {
	Name, Type string
	Labels     []string
}

// Check looks at what an alert means: whether its condition can be read, names
// metrics that there are, and says what it seems to.
func Check(rule Rule, known []Series) []Problem { return check(rule, known, keptByDefault) }

// check also knows for how long the cluster's totals are kept.
func check(rule Rule, known []Series, kept time.Duration) []Problem {
	c := &checker{rule: rule, known: map[string]Series{}}
	for _, s := range known {
		c.known[s.Name] = s
		if s.Type == "histogram" {
			for _, suffix := range histogramSuffixes {
				c.known[s.Name+suffix] = Series{Name: s.Name + suffix, Type: "counter", Labels: append(slices.Clone(s.Labels), "le")}
			}
			delete(c.known, s.Name)
		}
	}
	expr, err := parser.ParseExpr(rule.Condition)
	if err != nil {
		c.add(false, position(err), "an expression of PromQL")
		return c.problems
	}
	if expr.Type() != parser.ValueTypeVector && expr.Type() != parser.ValueTypeScalar {
		c.add(false, "the condition is a "+parser.DocumentedType(expr.Type()), "an instant vector: a comparison such as x > 5")
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			c.selector(node)
		case *parser.BinaryExpr:
			c.perSecond(node)
		}
		return nil
	})
	if back := reach(expr); back > kept {
		c.add(true, fmt.Sprintf("its ranges reach back %s, and the cluster's totals are kept for %s", config.Duration(back), config.Duration(kept)), "shorter ranges, or a longer retention.metrics")
	}
	c.templates("labels", rule.Labels)
	c.templates("annotations", rule.Annotations)
	return c.problems
}

// keptByDefault is for how long the compactor keeps totals.
const keptByDefault = 24 * time.Hour

func (c *checker) templates(section string, texts map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		err := expander(context.Background(), c.rule, texts[name], nil, time.Time{}, nil).ParseTest()
		if err != nil {
			text := err.Error()
			c.add(false, section+"."+name+": "+text[strings.LastIndex(text, ": ")+2:], "a template of Prometheus")
		}
	}
}

// position puts an error of the parser into words: column N: what.
func position(err error) string {
	var list parser.ParseErrors
	if !errors.As(err, &list) || len(list) == 0 {
		return err.Error()
	}
	first := list[0]
	return fmt.Sprintf("column %d: %v", int(first.PositionRange.Start)+1, first.Err)
}

type checker struct {
	rule     Rule
	known    map[string]Series
	problems []Problem
}

func (c *checker) add(warning bool, message, want string) {
	c.problems = append(c.problems, Problem{Alert: c.rule.Name, Message: message, Want: want, Warning: warning})
}

func (c *checker) selector(v *parser.VectorSelector) {
	name := nameOf(v.LabelMatchers)
	if name == "" {
		return
	}
	at := fmt.Sprintf("column %d: ", int(v.PosRange.Start)+1)
	series, ok := c.known[name]
	if !ok {
		c.add(true, at+"the cluster has no metric "+name, config.Nearest(name, slices.Sorted(maps.Keys(c.known))))
		return
	}
	for _, m := range v.LabelMatchers {
		if m.Name != model.MetricNameLabel && !slices.Contains(series.Labels, m.Name) {
			c.add(true, at+"the cluster's "+name+" has no label "+m.Name, "one of "+strings.Join(series.Labels, ", "))
		}
	}
}

// perSecond warns of rate(x[5m]) > 5, which means five each second.
func (c *checker) perSecond(b *parser.BinaryExpr) {
	number, ok := b.RHS.(*parser.NumberLiteral)
	if !ok || !b.Op.IsComparisonOperator() || number.Val < 1 {
		return
	}
	var call *parser.Call
	parser.Inspect(b.LHS, func(node parser.Node, _ []parser.Node) error {
		if found, ok := node.(*parser.Call); ok && (found.Func.Name == "rate" || found.Func.Name == "irate") {
			call = found
		}
		return nil
	})
	if call == nil {
		return
	}
	suggested := "increase" + strings.TrimPrefix(call.String(), call.Func.Name)
	c.add(true, fmt.Sprintf("column %d: %s is per second: %s %s %v means that many each second",
		int(call.PosRange.Start)+1, call.Func.Name, call.String(), b.Op, number.Val),
		fmt.Sprintf("%s %s %v, if it is meant over the whole range", suggested, b.Op, number.Val))
}
