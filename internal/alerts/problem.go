package alerts

import (
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
)

// Problem is an error or a warning about an alert.
type Problem struct {
	Alert   string `json:"alert"`
	Message string `json:"message"`
	Want    string `json:"want,omitempty"`
	// Warning is a problem that does not keep the alert from working.
	Warning bool `json:"warning,omitempty"`
}

// String returns the problem on one line.
func (p Problem) String() string {
	text := p.Alert + ": "
	if p.Warning {
		text += "warning: "
	}
	text += p.Message
	if p.Want != "" {
		text += "; want " + p.Want
	}
	return text
}

// CheckFile returns the problems in the alerts of a file: in their expressions, metrics and
// texts, which judge checks, and in their receivers.
func CheckFile(cfg *config.Config, judge func(config.Alert, time.Duration) []config.Problem) []Problem {
	problems := []Problem{}
	for _, rule := range cfg.Alerts {
		for _, p := range judge(rule, cfg.Retention.Metrics.Std()) {
			problems = append(problems, Problem{Alert: rule.Name, Message: p.Key + ": " + p.Message, Want: p.Want, Warning: p.Warning})
		}
		problems = append(problems, unknownReceivers(cfg, rule)...)
	}
	return problems
}

func unknownReceivers(cfg *config.Config, rule Rule) []Problem {
	var problems []Problem
	for _, target := range rule.Notify {
		if name, _, _ := strings.Cut(target, ":"); cfg.Notify[name].Type == "" {
			problems = append(problems, Problem{
				Alert: rule.Name, Message: "the receiver " + strconv.Quote(name) + " is not configured: it is shown, and nobody is told",
				Want: "[notify." + name + "]", Warning: true,
			})
		}
	}
	return problems
}
