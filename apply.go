package forge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/limitkey"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// Review is what an operator should know before a configuration is applied: the crons that
// it would remove, and whether it belongs to another cluster.
type Review = cronstore.Review

// HeldError is the reason why a configuration was not applied without confirmation.
type HeldError = cronstore.HeldError

// Apply applies the cluster sections of a configuration, whole or not at all. It ignores a
// configuration that was superseded by a newer one unless force is set. It rejects a
// configuration that would remove all or more than half of the crons, or that belongs to
// another cluster, with a *HeldError; see ApplyConfirmed.
func Apply(ctx context.Context, pool *pgxpool.Pool, cfg *Config, force bool) (cronstore.Outcome, error) {
	return apply(ctx, pool, cfg, Origin{}, force, cronstore.Unattended)
}

// ApplyConfirmed applies the cluster sections of a configuration, even a superseded one, if
// confirm returns nil. confirm is called in the transaction, before any change; its error
// is returned wrapped.
func ApplyConfirmed(ctx context.Context, pool *pgxpool.Pool, cfg *Config, confirm func(Review) error) (cronstore.Outcome, error) {
	return ApplyFrom(ctx, pool, cfg, Origin{}, confirm)
}

// Origin is who puts a configuration in force, and from which file.
type Origin = cronstore.Origin

// ApplyFrom is ApplyConfirmed with the origin that the history of configurations has.
func ApplyFrom(ctx context.Context, pool *pgxpool.Pool, cfg *Config, from Origin, confirm func(Review) error) (cronstore.Outcome, error) {
	return apply(ctx, pool, cfg, from, true, confirm)
}

// PreviewApply returns the Review that ApplyConfirmed would pass to confirm. It changes
// nothing.
func PreviewApply(ctx context.Context, pool *pgxpool.Pool, cfg *Config) (Review, error) {
	review, _, err := preview(ctx, pool, cfg, true)
	return review, err
}

// candidate is a configuration that may be put in force: that of a file, or a stored one.
type candidate struct {
	cfg  *Config
	body []byte
	hash string
	// node is the node whose file it is, or the machine of a command.
	node, cluster string
	origin        Origin
}

// candidateOf returns the configuration of a file.
func candidateOf(cfg *Config) (candidate, error) {
	body, hash, err := cfg.ClusterSections()
	return candidate{cfg: cfg, body: body, hash: hash, node: cfg.Node.ID, cluster: cfg.Cluster.Name}, err
}

// applyOwn applies the node's configuration unless a newer one is in force or it needs
// confirmation first. A configuration without crons, jobs, queues and alerts changes
// nothing.
func (n *Node) applyOwn(ctx context.Context) error {
	if !n.cfg.HasClusterSections() {
		n.logger.InfoContext(ctx, "this configuration has no crons, jobs, queues or alerts; the cluster keeps its own")
		return nil
	}
	outcome, err := apply(ctx, n.pool, n.cfg, Origin{File: n.filePath()}, n.opts.apply, cronstore.Unattended)
	if held, ok := errors.AsType[*HeldError](err); ok {
		n.unconfirmedHash = n.self.ConfigHash
		return n.reportUnconfirmed(ctx, held)
	}
	if err != nil {
		return err
	}
	n.reportApply(ctx, outcome, n.self.ConfigHash)
	return nil
}

func apply(ctx context.Context, db postgres.DB, cfg *Config, from Origin, force bool, confirm func(Review) error) (cronstore.Outcome, error) {
	c, err := candidateOf(cfg)
	if err != nil {
		return cronstore.Outcome{}, err
	}
	c.origin = from
	return c.apply(ctx, db, force, confirm)
}

func (c candidate) apply(ctx context.Context, db postgres.DB, force bool, confirm func(Review) error) (cronstore.Outcome, error) {
	wanted, err := c.applied()
	if err != nil {
		return cronstore.Outcome{}, err
	}
	wanted.Confirm = confirm
	outcome, err := cronstore.New(db).Apply(ctx, wanted, force)
	if err != nil {
		return outcome, fmt.Errorf("apply the configuration: %w", err)
	}
	return outcome, nil
}

func preview(ctx context.Context, db postgres.DB, cfg *Config, force bool) (Review, cronstore.State, error) {
	c, err := candidateOf(cfg)
	if err != nil {
		return Review{}, "", err
	}
	return c.preview(ctx, db, force)
}

func (c candidate) preview(ctx context.Context, db postgres.DB, force bool) (Review, cronstore.State, error) {
	wanted, err := c.applied()
	if err != nil {
		return Review{}, "", err
	}
	return cronstore.New(db).Preview(ctx, wanted, force)
}

// applied converts a configuration for cronstore.Apply.
func (c candidate) applied() (cronstore.Applied, error) {
	specs, err := specsOf(c.cfg)
	if err != nil {
		return cronstore.Applied{}, err
	}
	return cronstore.Applied{
		Origin: c.origin, Hash: c.hash, NodeID: c.node, Body: c.body, Crons: specs, Cluster: c.cluster,
		Also: func(ctx context.Context, tx pgx.Tx) error { return jobstore.New(tx).SetLimits(ctx, limitsOf(c.cfg)) },
	}, nil
}

// limitsOf returns the cluster-wide limits.
func limitsOf(cfg *Config) []jobstore.Limit {
	var limits []jobstore.Limit
	add := func(limit jobstore.Limit) {
		if limit.Most > 0 {
			if key, err := limitkey.Parse(limit.Key); err == nil {
				limit.Key = key.String() // as it is read from the database
			}
			limits = append(limits, limit)
		}
	}
	of := func(scope, name string, global int, perKey, onNode config.LimitPerKey, rate config.RateLimit) {
		add(jobstore.Limit{Scope: scope, Name: name, Most: global})
		add(jobstore.Limit{Scope: scope, Name: name, Most: perKey.Limit, Key: perKey.Key})
		add(jobstore.Limit{Scope: scope, Name: name, Most: onNode.Limit, Key: onNode.Key, PerNode: onNode.Limit > 0})
		add(jobstore.Limit{Scope: scope, Name: name, Most: rate.Limit, Key: rate.Key, Per: rate.Per.Std(), Burst: rate.Burst})
	}
	for name, queue := range cfg.Queues {
		of(jobstore.ScopeQueue, name, queue.GlobalLimit, queue.LimitPerKey, queue.MaxWorkersPerKey, queue.RateLimit)
	}
	for name, job := range cfg.Jobs {
		of(jobstore.ScopeJob, name, job.GlobalLimit, job.LimitPerKey, job.MaxWorkersPerKey, job.RateLimit)
		add(jobstore.Limit{Scope: jobstore.ScopeWeight, Name: name, Most: job.Weight})
	}
	return limits
}

// specsOf resolves every cron with its job.
func specsOf(cfg *Config) (map[string]cronstore.Spec, error) {
	specs := make(map[string]cronstore.Spec, len(cfg.Crons))
	for _, cron := range cfg.Crons {
		spec, err := specOf(cfg, cron)
		if err != nil {
			return nil, err
		}
		specs[cron.Name] = spec
	}
	return specs, nil
}

func specOf(cfg *Config, cron config.Cron) (cronstore.Spec, error) {
	name, job, ok := cfg.JobFor(cron)
	if !ok {
		return cronstore.Spec{}, fmt.Errorf("cron %s: there is no job %q", cron.Name, name)
	}
	spec := cronstore.Spec{
		Schedule: cron.Schedule, Timezone: cron.Timezone, Job: name, Paused: cron.Paused,
		Overlap: cron.Overlap, CatchUp: string(cron.CatchUp), CatchUpMax: cron.CatchUpLimit,
		CatchUpSpan: cron.CatchUpWindow, DSTMissing: cron.DSTMissing, DSTRepeated: cron.DSTRepeated,
		StartAt: cron.StartAt.Time(), EndAt: cron.EndAt.Time(), Exclude: cron.Exclude, Jitter: cron.Jitter,
		OnFailure: cron.OnFailure.Notify, Description: cron.Description, Owner: cron.Owner, Runbook: cron.Runbook,
		Queue: job.Queue, Priority: job.Priority, MaxAttempts: job.Retry.MaxAttempts,
		Capability: job.Capability, Tags: job.Tags,
	}
	if cron.Args != nil {
		args, err := json.Marshal(cron.Args)
		if err != nil {
			return spec, fmt.Errorf("cron %s: encode args: %w", cron.Name, err)
		}
		spec.Args = args
	}
	return spec, nil
}

// reportApply logs the outcome of applying a configuration with the hash own.
func (n *Node) reportApply(ctx context.Context, outcome cronstore.Outcome, own string) {
	switch outcome.State {
	case cronstore.StateApplied:
		n.logger.InfoContext(ctx, "configuration applied", "hash", outcome.InForce,
			"added", len(outcome.Added), "changed", len(outcome.Changed), "removed", len(outcome.Removed))
		if len(outcome.Removed) > 0 {
			n.logger.WarnContext(ctx, "crons were removed; they keep their history and continue if a file adds them again",
				"crons", cronstore.NameSome(outcome.Removed), "count", len(outcome.Removed))
		}
	case cronstore.StateSuperseded:
		n.logger.WarnContext(ctx, "this file's crons were superseded by a newer configuration, which stays in force; run forge apply to go back",
			"own_hash", own, "in_force", outcome.InForce)
	case cronstore.StateInForce:
		if len(outcome.Added) > 0 {
			n.logger.WarnContext(ctx, "crons whose rows were deleted start again",
				"crons", cronstore.NameSome(outcome.Added), "count", len(outcome.Added))
		}
	}
}

// ownFile gives the dashboard access to the node's current configuration.
type ownFile struct{ *Node }

func (f ownFile) Plan(ctx context.Context, ahead time.Duration) (cronstore.Plan, error) {
	return MakePlan(ctx, f.pool, f.current.Load(), ahead)
}

func (f ownFile) Apply(ctx context.Context, confirm func(cronstore.Review) error) (cronstore.Outcome, error) {
	return apply(ctx, postgres.RequestDB{Pool: f.pool}, f.current.Load(), Origin{By: requester(ctx), File: f.filePath()}, true, confirm)
}

func (f ownFile) CheckAlerts() ([]alerts.Problem, error) {
	if f.opts.alerts == nil {
		return nil, alerts.ErrNoEngine
	}
	return alerts.CheckFile(f.current.Load(), f.opts.alerts.Judge), nil
}

func (f ownFile) ExportAlerts() ([]byte, error) {
	if f.opts.alerts == nil {
		return nil, alerts.ErrNoEngine
	}
	return f.opts.alerts.Export(f.current.Load().Alerts)
}
