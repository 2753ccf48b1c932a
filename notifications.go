package forge

import (
	"context"
	"net/url"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/netguard"
	"github.com/forge-scheduler/forge/internal/notify"
	"github.com/forge-scheduler/forge/internal/outbox"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// aggregatorDuty is what the leader of the metrics aggregator does: it adds up
// the nodes' numbers, and tells receivers of failed runs.
func (n *Node) aggregatorDuty() (roles.Duty, error) {
	receivers, err := notify.New(n.cfg.Notify, n.receiverGuard(), n.logger)
	if err != nil {
		return nil, err
	}
	n.receivers.Store(receivers)
	courier := outbox.New(outbox.Options{
		Pool: n.pool, Sender: sender{&n.receivers}, Schema: n.cfg.Database.Schema, PageURL: n.pageAbout, Logger: n.logger,
		Poll: n.poll(), Hub: n.hub,
	})
	watching := alerts.Options{
		Pool: n.pool, Interval: n.cfg.Metrics.ScrapeInterval.Std(), Logger: n.logger,
		InForce: func(ctx context.Context, unless string) (cronstore.Config, error) {
			return cronstore.ConfigInForceUnless(ctx, n.pool, unless)
		},
		DeadmanURL: func() string { return n.current.Load().Metrics.DeadmanURL },
		Deadman:    n.receiverGuard().Client(),
	}
	sums := aggregator.New(n.pool, aggregator.Options{
		Interval: n.cfg.Metrics.ScrapeInterval.Std(), Metrics: n.metrics, Logger: n.logger,
		Watch: func(fence leaderstore.Fence) aggregator.Watch { return alerts.New(watching, fence) },
	})
	return func(ctx context.Context, fence leaderstore.Fence) error {
		group, working := errgroup.WithContext(ctx)
		group.Go(func() error {
			part, end := progress.Begin(working, "metrics")
			defer end()
			return sums.Lead(part, fence)
		})
		group.Go(func() error { return courier.Lead(working, fence) })
		return group.Wait()
	}, nil
}

// receiverGuard allows the addresses of receivers and of the dead-man's call.
func (n *Node) receiverGuard() netguard.Guard {
	return netguard.Receivers(n.cfg.HTTP.AllowedReceivers())
}

// sender tells the receivers of the file as it is now.
type sender struct {
	receivers *atomic.Pointer[notify.Receivers]
}

func (s sender) Send(ctx context.Context, target string, m notify.Message) error {
	return s.receivers.Load().Send(ctx, target, m)
}

// pageAbout is the address of the page about a notification on this node.
func (n *Node) pageAbout(about outbox.Notification) string {
	switch {
	case !n.cfg.Dashboard.Enabled:
		return ""
	case about.Alert != "":
		return n.self.APIURL + "/alerts"
	default:
		return n.self.APIURL + "/crons/" + url.PathEscape(about.Cron)
	}
}
