package alerting

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/prometheus/promql"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/leaderstore"
)

// minLookback is the shortest time for which a total counts when no other follows.
const minLookback = 30 * time.Second

// watch evaluates the alerts of one term.
type watch struct {
	opts   alerts.WatchOptions
	fence  leaderstore.Fence
	engine *promql.Engine

	hash    string
	rules   []alerts.Rule
	needs   needs
	history *history
	open    map[string]alerts.Occurrence // by key
	loaded  bool
	failing map[string]string // by alert
	unheard string            // error of the last deadman_url request
}

// NewWatch returns the evaluation of the alerts during a term. The caller must close it.
func (Engine) NewWatch(opts alerts.WatchOptions, fence leaderstore.Fence) aggregator.Watch {
	return &watch{
		opts: opts, fence: fence, failing: map[string]string{}, history: newHistory(),
		engine: newEngine(max(minLookback, 3*opts.Interval)),
	}
}

// Close ends the engine.
func (w *watch) Close() { _ = w.engine.Close() }

// See evaluates the totals of an instant. It returns leaderstore.ErrDeposed when the term
// is over. After any other error the next call catches up.
func (w *watch) See(ctx context.Context, totals aggregator.Totals) error {
	if err := w.see(ctx, totals); err != nil {
		return err
	}
	w.signOfLife(ctx)
	return nil
}

func (w *watch) see(ctx context.Context, totals aggregator.Totals) error {
	if err := w.prepare(ctx, totals.At); err != nil {
		return err
	}
	w.history.add(totals.At, w.wanted(totals.Samples))
	w.history.forget(totals.At.Add(-w.reach()))
	silent, err := w.silences(ctx)
	if err != nil {
		return err
	}
	holds, judged := w.evaluate(ctx, totals.At)
	c := judge(totals.At, early(w.opts.Interval), w.open, holds, judged, w.gone, silent)
	if len(c.saved)+len(c.refreshed)+len(c.forgotten) == 0 {
		return nil
	}
	if err := w.write(ctx, &c); err != nil {
		w.loaded = false // unknown whether it was written
		return err
	}
	for _, occurrence := range c.forgotten {
		delete(w.open, occurrence.Key())
	}
	for _, occurrence := range c.refreshed {
		w.open[occurrence.Key()] = occurrence
	}
	for _, occurrence := range c.saved {
		w.log(ctx, occurrence)
		w.open[occurrence.Key()] = occurrence
		if occurrence.State == alerts.Resolved {
			delete(w.open, occurrence.Key())
		}
	}
	return nil
}

// prepare reads the rules in force when they have changed, and the history that their
// conditions need.
func (w *watch) prepare(ctx context.Context, now time.Time) error {
	inForce, err := w.opts.InForce(ctx, w.hash)
	if err != nil {
		return err
	}
	if inForce.Hash != w.hash {
		rules, err := alerts.RulesIn(inForce.Body)
		if err != nil {
			return err
		}
		w.loaded = false
		w.hash, w.rules, w.needs = inForce.Hash, rules, needsOf(rules)
	}
	if w.loaded {
		return nil
	}
	open, err := alerts.New(w.opts.Pool).Open(ctx)
	if err != nil {
		return err
	}
	w.open = map[string]alerts.Occurrence{}
	for _, occurrence := range open {
		w.open[occurrence.Key()] = occurrence
	}
	w.history = newHistory()
	if len(w.rules) > 0 {
		recent, err := aggregator.NewStore(w.opts.Pool).Recent(ctx, w.opts.Interval, now.Add(-w.reach()), w.needs.want)
		if err != nil {
			return err
		}
		for _, totals := range recent {
			if totals.At.Before(now) {
				w.history.add(totals.At, totals.Samples)
			}
		}
	}
	w.loaded = true
	return nil
}

// early is the tolerance by which two evaluations may be closer than whole intervals: the
// evaluation that began a wait may have been delayed. Without it a wait of two intervals
// would take sometimes two and sometimes three.
func early(interval time.Duration) time.Duration { return min(interval/10, time.Second) }

// reach returns how long the totals are kept.
func (w *watch) reach() time.Duration { return w.needs.reach + max(minLookback, 3*w.opts.Interval) }

func (w *watch) wanted(samples []metrics.Sample) []metrics.Sample {
	var wanted []metrics.Sample
	for _, sample := range samples {
		if w.needs.want(sample.Name) {
			wanted = append(wanted, sample)
		}
	}
	return wanted
}

// silences reads the silenced alerts, by the database's clock.
func (w *watch) silences(ctx context.Context) (silent func(alert string) bool, err error) {
	if len(w.rules) == 0 {
		return func(string) bool { return false }, nil
	}
	silences, err := alerts.New(w.opts.Pool).Silences(ctx)
	return func(alert string) bool {
		return slices.ContainsFunc(silences, func(s alerts.Silence) bool { return s.Alert == alert })
	}, err
}

func (w *watch) gone(alert string) bool {
	return !slices.ContainsFunc(w.rules, func(r alerts.Rule) bool { return r.Name == alert })
}

// evaluate returns the series for which conditions hold, and the rules that could be
// evaluated.
func (w *watch) evaluate(ctx context.Context, at time.Time) (holds []alerts.Occurrence, judged map[string]alerts.Rule) {
	judged = map[string]alerts.Rule{}
	for _, rule := range w.rules {
		found, err := evaluate(ctx, w.engine, w.history, rule, at)
		if err != nil {
			if text := err.Error(); w.failing[rule.Name] != text && ctx.Err() == nil {
				w.failing[rule.Name] = text
				w.opts.Logger.WarnContext(ctx, "alert not evaluated, it stays as it is", "alert", rule.Name, "error", err)
			}
			continue
		}
		delete(w.failing, rule.Name)
		judged[rule.Name] = rule
		holds = append(holds, found...)
	}
	return holds, judged
}

// write saves the changes and the messages to send, in one transaction.
func (w *watch) write(ctx context.Context, c *changes) error {
	return w.fence.Do(ctx, w.opts.Pool, func(tx pgx.Tx, _ time.Time) error {
		store := alerts.New(tx)
		var tell []string
		fires := map[string]bool{}
		for i := range c.saved {
			c.saved[i].Term = w.fence.Term
			if err := store.Save(ctx, &c.saved[i]); err != nil {
				return err
			}
			if alert := c.saved[i].Alert; told(c.saved[i]) && !slices.Contains(tell, alert) {
				tell = append(tell, alert)
			}
			if told(c.saved[i]) && c.saved[i].State == alerts.Firing {
				fires[c.saved[i].Alert] = true
			}
		}
		for i := range c.refreshed {
			c.refreshed[i].Term = w.fence.Term
		}
		if err := store.Refresh(ctx, c.refreshed); err != nil {
			return err
		}
		for _, occurrence := range c.forgotten {
			if err := store.Forget(ctx, occurrence.ID); err != nil {
				return err
			}
		}
		for _, alert := range tell {
			targets, news := w.news(alert, slices.Concat(c.saved, c.refreshed))
			if err := store.EnqueueAlert(ctx, alert, targets, news, !fires[alert]); err != nil {
				return err
			}
		}
		return nil
	})
}

// news returns the occurrences of an alert to send to receivers: those that just started
// firing or were resolved, and those that still fire; and the targets.
func (w *watch) news(alert string, written []alerts.Occurrence) (targets []string, news []alerts.OccurrenceFacts) {
	all := slices.Clone(written)
	for _, occurrence := range w.open {
		if !slices.ContainsFunc(written, func(s alerts.Occurrence) bool { return s.ID == occurrence.ID }) {
			all = append(all, occurrence)
		}
	}
	slices.SortFunc(all, func(a, b alerts.Occurrence) int { return strings.Compare(a.Key(), b.Key()) })
	for _, i := range all {
		if i.Alert != alert || !told(i) {
			continue
		}
		news = append(news, alerts.OccurrenceFacts{Labels: i.Labels, Annotations: i.Annotations, StartsAt: i.ActiveAt, EndsAt: i.ResolvedAt})
		for _, target := range i.Notify {
			if !slices.Contains(targets, target) {
				targets = append(targets, target)
			}
		}
	}
	return targets, news
}

func (w *watch) log(ctx context.Context, i alerts.Occurrence) {
	switch i.State {
	case alerts.Firing:
		w.opts.Logger.WarnContext(ctx, "alert fires", "alert", i.Alert, "labels", i.Labels, "value", i.Value, "silenced", i.Muted, "term", i.Term)
	case alerts.Resolved:
		w.opts.Logger.InfoContext(ctx, "alert resolved", "alert", i.Alert, "labels", i.Labels, "term", i.Term)
	case alerts.Pending, alerts.Inactive:
	}
}
