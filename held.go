package forge

import (
	"context"
	"errors"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// heldInterval is how often a node whose file waits for confirmation checks whether
// the file was applied.
const heldInterval = 5 * time.Second

// applyOwn puts the node's own configuration in force unless a newer one is, or it has
// to be confirmed first. One without crons, jobs, queues and alerts changes nothing.
func (n *Node) applyOwn(ctx context.Context) error {
	if !n.cfg.HasClusterSections() {
		n.logger.InfoContext(ctx, "this configuration has no crons, jobs, queues or alerts: the cluster's stay as they are")
		return nil
	}
	outcome, err := Apply(ctx, n.pool, n.cfg, n.opts.apply)
	if held, ok := errors.AsType[*HeldError](err); ok {
		n.held = n.self.ConfigHash
		return n.hold(ctx, held)
	}
	if err != nil {
		return err
	}
	n.reportApply(ctx, outcome, n.self.ConfigHash)
	return nil
}

// hold reports a configuration that is not applied until an operator confirms it.
func (n *Node) hold(ctx context.Context, held *HeldError) error {
	n.logger.WarnContext(ctx, "this configuration is not applied and waits for forge apply --yes",
		"reason", held.Error(), "path", n.opts.file.path)
	if err := nodestore.HoldConfig(ctx, n.pool, n.self, held.Error()); err != nil {
		return err
	}
	n.changes.announce()
	return nil
}

// awaitRelease is what a node without a file does with a configuration that waits: it
// reports when somebody has applied it.
func (n *Node) awaitRelease(ctx context.Context) error {
	ticker := time.NewTicker(heldInterval)
	defer ticker.Stop()
	for n.held != "" {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		released, err := n.release(ctx)
		if err != nil && ctx.Err() == nil {
			n.logger.DebugContext(ctx, "could not check whether the configuration was applied", "error", err)
		}
		if released {
			n.held = ""
		}
	}
	<-ctx.Done()
	return nil
}

func (n *Node) release(ctx context.Context) (bool, error) {
	inForce, err := cronstore.HashInForce(ctx, n.pool)
	if err != nil || inForce != n.held {
		return false, err
	}
	if err := nodestore.ReleaseConfig(ctx, n.pool, n.self); err != nil {
		return false, err
	}
	n.logger.InfoContext(ctx, "this configuration was applied", "hash", inForce)
	n.changes.announce()
	return true, nil
}

// reviewEdit returns a *HeldError for an edited configuration that has to be confirmed
// before the node takes it over.
func (n *Node) reviewEdit(ctx context.Context, now, next *Config) error {
	if next.HasClusterSections() {
		review, state, err := preview(ctx, n.pool, next, false)
		if err != nil || state != cronstore.StateApplied {
			return err
		}
		return cronstore.Unattended(review)
	}
	if !now.HasClusterSections() {
		return nil
	}
	_, hash, err := next.ClusterSections()
	if err != nil {
		return err
	}
	inForce, err := cronstore.HashInForce(ctx, n.pool)
	if err != nil || inForce == hash {
		return err
	}
	return &HeldError{Reason: "it has no crons, jobs, queues or alerts any more"}
}
