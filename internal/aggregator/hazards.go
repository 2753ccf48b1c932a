package aggregator

import (
	"context"
	"math"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// countHazards reads conditions that stop a cluster even if its nodes and roles are
// up.
func countHazards(ctx context.Context, db postgres.DB) ([]metrics.Sample, error) {
	queues, err := jobstore.New(db).WaitingQueues(ctx)
	if err != nil {
		return nil, err
	}
	snapshots, err := postgres.Snapshots(ctx, db)
	if err != nil {
		return nil, err
	}
	clock, err := postgres.ReadClock(ctx, db)
	if err != nil {
		return nil, err
	}
	clocks, err := NewStore(db).Clocks(ctx)
	if err != nil {
		return nil, err
	}
	samples := append(ofQueues(queues), ofSnapshots(snapshots)...)
	for _, c := range clocks {
		ahead := math.Round(c.Ahead.Seconds()*10) / 10
		samples = append(samples, labelled(metrics.NodeClockName, "node_id", c.NodeID, ahead))
	}
	return append(samples, metrics.Sample{Name: metrics.SetBackName, Value: clock.SetBack.Seconds()}), nil
}

func ofQueues(queues []jobstore.Queue) []metrics.Sample {
	var samples []metrics.Sample
	for _, q := range queues {
		paused := time.Duration(0)
		if !q.PausedAt.IsZero() {
			paused = max(q.Now.Sub(q.PausedAt), 0)
		}
		samples = append(samples,
			labelled(metrics.QueueOldestName, "queue", q.Name, q.WaitSeconds),
			labelled(metrics.QueuePausedName, "queue", q.Name, paused.Seconds()))
	}
	return samples
}

func ofSnapshots(snapshots []postgres.Snapshot) []metrics.Sample {
	transactions, age := map[string]int64{}, map[string]time.Duration{}
	for _, s := range snapshots {
		transactions[s.Holder] = max(transactions[s.Holder], s.Transactions)
		age[s.Holder] = max(age[s.Holder], s.Age)
	}
	var samples []metrics.Sample
	for _, holder := range postgres.Holders {
		samples = append(samples, labelled(metrics.SnapshotName, "holder", holder, float64(transactions[holder])))
	}
	for _, holder := range []string{postgres.Session, postgres.Prepared} { // the other holders have no time
		samples = append(samples, labelled(metrics.TransactionName, "holder", holder, age[holder].Seconds()))
	}
	return samples
}

func labelled(name, label, value string, sum float64) metrics.Sample {
	return metrics.Sample{Name: name, Labels: map[string]string{label: value}, Value: sum}
}
