package forge

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// rowsInterval is how often a node whose configuration is in force checks that all of its
// rows exist.
const rowsInterval = 30 * time.Second

// keepRows restores deleted rows of crons, limits and queues until ctx ends.
func (n *Node) keepRows(ctx context.Context) error {
	ticker := time.NewTicker(rowsInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := errors.Join(n.restoreRows(ctx), n.keepQueues(ctx)); err != nil && ctx.Err() == nil {
			n.logger.DebugContext(ctx, "could not check the rows of the configuration", "error", err)
		}
	}
}

func (n *Node) restoreRows(ctx context.Context) error {
	cfg := n.current.Load()
	if complete, err := n.hasRows(ctx, cfg); complete || err != nil {
		return err
	}
	own, err := n.rows.hashOf(cfg)
	if err != nil {
		return err
	}
	inForce, err := cronstore.New(n.pool).HashInForce(ctx)
	if err != nil || inForce != own {
		return err // another configuration is in force
	}
	n.logger.WarnContext(ctx, "rows of the configuration in force were deleted or changed, restoring them")
	outcome, err := apply(ctx, n.pool, cfg, Origin{File: n.filePath()}, false, cronstore.Unattended)
	if err != nil {
		return err
	}
	n.reportApply(ctx, outcome, own)
	return nil
}

// keepQueues inserts the rows of the queues that this node works, so that they can be
// paused before their first job.
func (n *Node) keepQueues(ctx context.Context) error {
	return jobstore.New(n.pool).EnsureQueues(ctx, slices.Sorted(maps.Keys(n.runner.Queues())))
}

// manyRows is the number of crons from which on a check of unchanged rows only counts them.
const manyRows = 1000

// checkedRows is what keepRows knows of the configuration that it checked last.
type checkedRows struct {
	cfg  *Config
	hash string // that of cfg; empty: not known yet
	// complete is the number of all rows of crons when those of cfg were among them; 0: never.
	complete int64
}

func (r *checkedRows) hashOf(cfg *Config) (hash string, err error) {
	if r.hash == "" {
		_, r.hash, err = cfg.ClusterSections()
	}
	return r.hash, err
}

// hasRows reports whether every cron and limit of the configuration has a row.
func (n *Node) hasRows(ctx context.Context, cfg *Config) (bool, error) {
	if n.rows.cfg != cfg {
		n.rows = checkedRows{cfg: cfg}
	}
	store := cronstore.New(n.pool)
	count, err := store.CountRows(ctx)
	if err != nil {
		return false, err
	}
	if n.rows.complete != count || len(cfg.Crons) < manyRows {
		names := make([]string, len(cfg.Crons))
		for i, cron := range cfg.Crons {
			names[i] = cron.Name
		}
		missing, err := store.Missing(ctx, names)
		if err != nil || len(missing) > 0 {
			return false, err
		}
		n.rows.complete = count
	}
	return jobstore.New(n.pool).LimitsInForce(ctx, limitsOf(cfg))
}
