package config

import (
	"regexp"
	"strings"
)

// checkAlerts checks the form of alerts. LoadOptions.JudgeAlert checks their conditions
// and texts.
func (l *loader) checkAlerts() {
	seen := map[string]bool{}
	for i, alert := range l.cfg.Alerts {
		path := element("alerts", i)
		switch {
		case !l.ok(path + ".name"):
		case alert.Name == "":
			l.wrongKey(path, "no name", `name = "..."`)
		case seen[alert.Name]:
			l.wrong(path+".name", "an alert of this name exists", Quote(alert.Name), "another name")
		}
		seen[alert.Name] = true
		if l.ok(path+".condition") && strings.TrimSpace(alert.Condition) == "" {
			l.wrongKey(path, "no condition", `condition = "..." in PromQL`)
		}
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
