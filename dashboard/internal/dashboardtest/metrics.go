package dashboardtest

import (
	"context"
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

// Breakdown adds up the Shares of all dimensions.
func (c History) Breakdown(_ context.Context, by string, from, to time.Time, keys int, order string) (aggregator.Breakdown, error) {
	return Read(c.Cluster, func() aggregator.Breakdown {
		c.Divided = aggregator.ShareQuery{Dimension: by, From: from, To: to}
		b := aggregator.Breakdown{By: by, From: from, To: to, Step: aggregator.Minute.String(), Items: []aggregator.BreakdownItem{}}
		for _, share := range c.Shares[:min(len(c.Shares), keys)] {
			b.Items = append(b.Items, aggregator.BreakdownItem{
				Key: share.Key, Attempts: share.Attempts, Failures: share.Failures,
				Wait: aggregator.PercentilesOf(share.Wait), Took: aggregator.PercentilesOf(share.Took),
			})
		}
		return b.Sorted(order)
	})
}

// SharePoints returns the Shares of a time.
func (c History) SharePoints(_ context.Context, q aggregator.ShareQuery, _ time.Duration, _ []string) ([]aggregator.SharePoint, error) {
	return Read(c.Cluster, func() (found []aggregator.SharePoint) {
		for _, share := range c.Shares {
			if !share.At.Before(q.From) && share.At.Before(q.To) {
				found = append(found, share)
			}
		}
		return found
	})
}

// WorkOf returns the same for each key.
func (c History) WorkOf(context.Context, string, string, time.Time, time.Time) (*aggregator.Work, error) {
	return Read(c.Cluster, recentWork)
}

func recentWork() *aggregator.Work {
	half, slow := .5, 90.
	return &aggregator.Work{
		From: Epoch.Add(-15 * time.Minute), To: Epoch, Started: 12.25, Finished: 3.25, Wait: aggregator.Percentiles{P50: &half, P95: &half, P99: &slow},
	}
}
