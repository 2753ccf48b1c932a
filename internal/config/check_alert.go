package config

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// checkAlerts checks the form of alerts. What they mean is judged by those who know
// the metrics.
func (l *loader) checkAlerts() {
	seen := map[string]bool{}
	for i, alert := range l.cfg.Alerts {
		path := element("alerts", i)
		switch {
		case !l.ok(path + ".name"):
		case alert.Name == "":
			l.wrongKey(path, "no name", `name = "..."`)
		case seen[alert.Name]:
			l.wrong(path+".name", "an alert of this name exists", strconv.Quote(clip(alert.Name)), "another name")
		}
		seen[alert.Name] = true
		l.checkCondition(path, alert.Condition)
		for name := range alert.Labels {
			if where := path + ".labels." + name; !labelName.MatchString(name) || name == "alertname" {
				l.wrongKey(where, "not a label that an alert may set", "letters, digits and _, and not alertname")
			}
		}
		l.checkReceivers(path+".notify", alert.Notify)
		if l.judge == nil {
			continue
		}
		for _, p := range l.judge(alert, l.cfg.Retention.Metrics.Std()) {
			l.add(path+"."+p.Key, false, p)
		}
	}
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func (l *loader) checkCondition(path, condition string) {
	where := path + ".condition"
	if !l.ok(where) {
		return
	}
	if strings.TrimSpace(condition) == "" {
		l.wrongKey(path, "no condition", `condition = "..." in PromQL`)
		return
	}
	expr, err := parser.ParseExpr(condition)
	if err != nil {
		l.wrong(where, parseError(err), strconv.Quote(clip(condition)), "an expression of PromQL")
		return
	}
	if kind := expr.Type(); kind != parser.ValueTypeVector && kind != parser.ValueTypeScalar {
		l.wrong(where, "a "+parser.DocumentedType(kind), strconv.Quote(clip(condition)), "an instant vector: a comparison such as x > 5")
	}
}

// parseError says where in an expression what is wrong.
func parseError(err error) string {
	var list parser.ParseErrors
	if !errors.As(err, &list) || len(list) == 0 {
		return err.Error()
	}
	return fmt.Sprintf("at its character %d: %v", int(list[0].PositionRange.Start)+1, list[0].Err)
}
