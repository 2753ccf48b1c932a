package forge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

const (
	// rowsInterval is how often a node whose configuration is in force checks that all of its
	// rows exist. It also limits such a check.
	rowsInterval = 30 * time.Second
	// applyTimeout limits an attempt to apply the configuration. It is long because an attempt
	// may wait for locks of other transactions, and the configuration may have very many crons.
	applyTimeout = 5 * time.Minute
)

// errNotRestored means that rows are missing and could not be restored.
var errNotRestored = errors.New("restore the rows of the configuration")

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
		switch err := errors.Join(n.restoreRows(ctx), n.checkQueues(ctx)); {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, errNotRestored):
			n.logger.WarnContext(ctx, "could not restore the rows of the configuration yet, will retry", "error", err)
		default:
			n.logger.DebugContext(ctx, "could not check the rows of the configuration", "error", err)
		}
	}
}

func (n *Node) restoreRows(ctx context.Context) error {
	cfg := n.current.Load()
	own, missing, err := n.rowsMissing(ctx, cfg)
	if err != nil || !missing {
		return err
	}
	n.logger.WarnContext(ctx, "rows of the configuration in force were deleted or changed, restoring them")
	applying, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	outcome, err := apply(applying, n.pool, cfg, Origin{File: n.filePath()}, false, cronstore.Unattended)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotRestored, err)
	}
	n.reportApply(ctx, outcome, own)
	return nil
}

// rowsMissing reports whether the configuration is in force without all of its rows, and
// returns its hash then.
func (n *Node) rowsMissing(ctx context.Context, cfg *Config) (own string, missing bool, err error) {
	checking, cancel := context.WithTimeout(ctx, rowsInterval)
	defer cancel()
	if complete, err := n.hasRows(checking, cfg); complete || err != nil {
		return "", false, err
	}
	if own, err = n.rows.hashOf(cfg); err != nil {
		return "", false, err
	}
	inForce, err := cronstore.New(n.pool).HashInForce(checking)
	return own, inForce == own, err
}

// checkQueues calls keepQueues for at most rowsInterval.
func (n *Node) checkQueues(ctx context.Context) error {
	checking, cancel := context.WithTimeout(ctx, rowsInterval)
	defer cancel()
	return n.keepQueues(checking)
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
