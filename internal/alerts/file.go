package alerts

import (
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/internal/alertstore"
	"github.com/forge-scheduler/forge/internal/config"
)

// Problem is an error or a warning about an alert.
type Problem = alertstore.Problem

// CheckFile checks the alerts of a file: their expressions, metrics, receivers and texts.
func CheckFile(cfg *config.Config) []Problem {
	problems := []Problem{}
	for i, rule := range alertstore.Of(cfg) {
		for _, p := range Judge(cfg.Alerts[i], cfg.Retention.Metrics.Std()) {
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
