package dashboardtest

import (
	"time"

	"github.com/forge-scheduler/forge/internal/aggregator"
)

// Window is a row of a series at some minutes before epoch.
func Window(metric string, minutes int, value float64, labels ...string) aggregator.Row {
	row := aggregator.Row{Metric: metric, Labels: map[string]string{}, At: Epoch.Add(-time.Duration(minutes) * time.Minute), Value: value}
	for i := 0; i+1 < len(labels); i += 2 {
		row.Labels[labels[i]] = labels[i+1]
	}
	return row
}
