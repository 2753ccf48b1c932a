package alerts

import (
	"slices"
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/internal/alertstore"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// CheckFile looks at what the alerts of a file mean: their expressions, metrics,
// receivers and texts.
func CheckFile(cfg *config.Config) []Problem {
	problems := []Problem{}
	known := clusterSeries()
	for _, rule := range alertstore.Of(cfg) {
		problems = append(problems, check(rule, known, cfg.Retention.Metrics.Std())...)
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

// clusterSeries are the metrics as the cluster's totals have them.
func clusterSeries() []Series {
	var all []Series
	for _, s := range metrics.New("").Series() {
		labels := slices.Clone(s.Labels)
		if s.Name != metrics.NodeReportingName {
			labels = slices.DeleteFunc(labels, func(l string) bool { return l == "node_id" })
		}
		all = append(all, Series{Name: s.Name, Type: s.Type, Labels: labels})
	}
	return all
}
