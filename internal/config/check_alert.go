package config

import (
	"strconv"
	"strings"
)

// checkAlerts checks the form of alerts. This version keeps them, and receivers,
// for a later one.
func (l *loader) checkAlerts() {
	if len(l.cfg.Alerts) > 0 {
		l.warn("alerts", "this version does not evaluate alerts itself", "the same rules in Prometheus (see deploy/prometheus/)")
	}
	if len(l.cfg.Notify) > 0 {
		l.warn("notify", "this version does not notify anybody itself", "Alertmanager, behind the rules in deploy/prometheus/")
	}
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
		if l.ok(path+".condition") && strings.TrimSpace(alert.Condition) == "" {
			l.wrongKey(path, "no condition", `condition = "..." in PromQL`)
		}
		l.checkReceivers(path, alert.Notify)
	}
}

// checkReceivers warns of targets that no section names. A target is a receiver,
// or a receiver and a place, as in slack:#ops.
func (l *loader) checkReceivers(path string, targets []string) {
	for i, target := range targets {
		name, _, _ := strings.Cut(target, ":")
		if _, ok := l.cfg.Notify[name]; !ok && name != "" {
			l.warn(element(path+".notify", i), "the receiver "+strconv.Quote(clip(name))+" is not configured", "[notify."+clip(name)+"]")
		}
	}
}
