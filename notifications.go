package forge

import (
	"context"
	"net/url"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/netguard"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// aggregatorWork returns the work of the metrics aggregator: it aggregates the nodes'
// metrics, evaluates alerts, and sends notifications to receivers.
func (n *Node) aggregatorWork() (roles.WorkFunc, error) {
	receivers, err := n.newReceivers(n.cfg)
	if err != nil {
		return nil, err
	}
	n.receivers.Store(&receivers)
	dispatcher := alerts.NewDispatcher(alerts.DispatcherOptions{
		Pool: n.pool, Sender: sender{&n.receivers}, Schema: n.cfg.Database.Schema, PageURL: n.pageAbout, Logger: n.logger,
		Notifier: n.notifier, Contacts: n.contactsOf,
	})
	sums := aggregator.New(n.pool, aggregator.Options{
		Interval: n.cfg.Metrics.ScrapeInterval.Std(), Metrics: n.metrics, Logger: n.logger,
		Watch: n.newWatch,
	})
	recorder := hazards.NewRecorder(n.pool, n.cfg.Metrics.ScrapeInterval.Std(), n.logger)
	return func(ctx context.Context, fence leaderstore.Fence) error {
		group, working := errgroup.WithContext(ctx)
		group.Go(func() error {
			part, end := watchdog.Begin(working, "metrics")
			defer end()
			return sums.Lead(part, fence)
		})
		group.Go(func() error {
			part, end := watchdog.Begin(working, "hazards")
			defer end()
			return recorder.Lead(part, fence)
		})
		group.Go(func() error { return dispatcher.Lead(working, fence) })
		return group.Wait()
	}, nil
}

// receiverGuard allows the addresses of receivers and of the dead-man URL.
func (n *Node) receiverGuard() netguard.Guard {
	return netguard.Receivers(n.cfg.HTTP.AllowedReceivers())
}

// sender sends to the receivers of the current configuration.
type sender struct {
	receivers *atomic.Pointer[alerts.Sender]
}

func (s sender) Send(ctx context.Context, target string, m alerts.Message) error {
	return (*s.receivers.Load()).Send(ctx, target, m)
}

// contactsOf returns the owners and runbooks of crons.
func (n *Node) contactsOf(ctx context.Context, crons []string) ([]alerts.Contact, error) {
	found, err := cronstore.New(n.pool).Contacts(ctx, crons)
	contacts := make([]alerts.Contact, len(found))
	for i, c := range found {
		contacts[i] = alerts.Contact(c)
	}
	return contacts, err
}

// pageAbout returns the URL of this node's page about a notification.
func (n *Node) pageAbout(about alerts.Notification) string {
	switch {
	case !n.cfg.Dashboard.Enabled:
		return ""
	case about.Alert != "":
		return n.self.APIURL + "/alerts"
	default:
		return n.self.APIURL + "/crons/" + url.PathEscape(about.Cron)
	}
}
