package alerting

import (
	"maps"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/forge-scheduler/forge/internal/alerts"
)

type exportedFile struct {
	Groups []exportedGroup `json:"groups"`
}

type exportedGroup struct {
	Name  string         `json:"name"`
	Rules []exportedRule `json:"rules"`
}

type exportedRule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	KeepFiring  string            `json:"keep_firing_for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Export returns the rules as a file for Prometheus. If a condition checks for too little
// of something, the absence of its series also counts: a sum over no series is empty, not
// 0.
func (Engine) Export(rules []alerts.Rule) ([]byte, error) {
	group := exportedGroup{Name: "forge", Rules: []exportedRule{}}
	for _, rule := range rules {
		exported := exportedRule{Alert: rule.Name, Expr: guarded(rule.Condition), Labels: map[string]string{}, Annotations: rule.Annotations}
		if rule.For > 0 {
			exported.For = model.Duration(rule.For).String()
		}
		if rule.KeepFiringFor > 0 {
			exported.KeepFiring = model.Duration(rule.KeepFiringFor).String()
		}
		if rule.Severity != "" {
			exported.Labels["severity"] = rule.Severity
		}
		maps.Copy(exported.Labels, rule.Labels)
		group.Rules = append(group.Rules, exported)
	}
	return yaml.Marshal(exportedFile{Groups: []exportedGroup{group}})
}

// guarded adds absent() for the series of a condition that compares with <, or with 0.
func guarded(condition string) string {
	expr, err := parser.ParseExpr(condition)
	if err != nil {
		return condition
	}
	compared, ok := expr.(*parser.BinaryExpr)
	if !ok || !tooLittle(compared) {
		return condition
	}
	guards := []string{strings.TrimSpace(condition)}
	parser.Inspect(compared.LHS, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		plain := *selector
		plain.OriginalOffset, plain.Timestamp = 0, nil
		guards = append(guards, "absent("+plain.String()+")")
		return nil
	})
	return strings.Join(guards, " or ")
}

func tooLittle(compared *parser.BinaryExpr) bool {
	number, ok := compared.RHS.(*parser.NumberLiteral)
	switch {
	case !ok:
		return false
	case compared.Op == parser.EQLC:
		return number.Val == 0
	default:
		return compared.Op == parser.LSS || compared.Op == parser.LTE
	}
}
