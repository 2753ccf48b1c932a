package forge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/netguard"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// AlertEngine checks and evaluates alerts and notifies receivers. alerting.New of the
// package github.com/forge-scheduler/forge/alerting returns it.
type AlertEngine interface {
	// Judge returns the errors and warnings about an alert. kept is the retention of the
	// cluster's totals.
	Judge(alert config.Alert, kept time.Duration) []config.Problem
	// Export returns alerts as a file of rules for Prometheus.
	Export(rules []alerts.Rule) ([]byte, error)
	// NewWatch returns the evaluation of the alerts during a term.
	NewWatch(options alerts.WatchOptions, fence leaderstore.Fence) aggregator.Watch
	// NewReceivers returns the receivers of [notify.NAME], at addresses that guard allows.
	NewReceivers(configs map[string]config.Notify, guard netguard.Guard, logger *slog.Logger) (alerts.Sender, error)
}

// WithAlerts makes the node evaluate [[alerts]] and notify the receivers of [notify.NAME]
// while it leads the metrics aggregator:
//
//	forge.WithAlerts(alerting.New())
//
// Without it, a program that imports forge compiles neither Prometheus' engine nor
// Alertmanager. A file with alerts or receivers is then an error of New, unless node.roles
// leaves out metrics_aggregator.
func WithAlerts(engine AlertEngine) Option { return func(o *options) { o.alerts = engine } }

// checkAlerts returns the errors in the alerts of a file. Without an engine, a node that may
// lead the metrics aggregator accepts neither alerts nor receivers.
func (n *Node) checkAlerts(cfg *Config) error {
	engine := n.opts.alerts
	if engine == nil {
		needed := cfg.Node.HasRole(string(roles.MetricsAggregator))
		switch {
		case needed && len(cfg.Alerts) > 0:
			return fmt.Errorf("the configuration has [[alerts]]: %w", alerts.ErrNoEngine)
		case needed && len(cfg.Notify) > 0:
			return fmt.Errorf("the configuration has receivers, [notify.NAME]: %w", alerts.ErrNoEngine)
		}
		return nil
	}
	var problems []string
	for i, alert := range cfg.Alerts {
		for _, p := range engine.Judge(alert, cfg.Retention.Metrics.Std()) {
			if !p.Warning {
				p.Key = fmt.Sprintf("alerts[%d].%s", i, p.Key)
				problems = append(problems, strings.TrimPrefix(p.String(), ": "))
			}
		}
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	return nil
}

// newReceivers returns the receivers of a configuration.
func (n *Node) newReceivers(cfg *Config) (alerts.Sender, error) {
	if n.opts.alerts == nil {
		return noReceivers{}, nil
	}
	return n.opts.alerts.NewReceivers(cfg.Notify, n.receiverGuard(), n.logger)
}

// noReceivers are the receivers of a node without an engine.
type noReceivers struct{}

func (noReceivers) Send(_ context.Context, target string, _ alerts.Message) error {
	name, _, _ := strings.Cut(target, ":")
	return fmt.Errorf("receiver %q: %w", name, alerts.ErrUnknown)
}

// newWatch returns the evaluation of the alerts during a term.
func (n *Node) newWatch(fence leaderstore.Fence) aggregator.Watch {
	if n.opts.alerts == nil {
		return &unevaluated{node: n}
	}
	return n.opts.alerts.NewWatch(alerts.WatchOptions{
		Pool: n.pool, Interval: n.cfg.Metrics.ScrapeInterval.Std(), Logger: n.logger,
		InForce:    cronstore.New(n.pool).SettingsUnless,
		DeadmanURL: func() string { return n.current.Load().Metrics.DeadmanURL },
		Deadman:    n.receiverGuard().Client(),
	}, fence)
}

// unevaluated is the watch of a node without an engine. Its own file has no alerts, but the
// configuration in force may come from another node.
type unevaluated struct {
	node *Node
	hash string
}

// See logs a warning if the configuration in force has alerts.
func (w *unevaluated) See(ctx context.Context, _ aggregator.Totals) error {
	inForce, err := cronstore.New(w.node.pool).SettingsUnless(ctx, w.hash)
	if err != nil || inForce.Hash == w.hash {
		return err
	}
	rules, err := alerts.RulesIn(inForce.Body)
	if err != nil {
		return err
	}
	w.hash = inForce.Hash
	if len(rules) > 0 {
		w.node.logger.WarnContext(ctx, "the alerts in force are not evaluated", "count", len(rules), "error", alerts.ErrNoEngine)
	}
	return nil
}

func (*unevaluated) Close() {}
