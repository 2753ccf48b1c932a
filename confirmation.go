package forge

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// confirmationInterval is how often a node with an unconfirmed configuration checks whether
// it was applied. It also limits such a check.
const confirmationInterval = 5 * time.Second

// reportUnconfirmed reports a configuration that is not applied until an operator confirms
// it.
func (n *Node) reportUnconfirmed(ctx context.Context, held *HeldError) error {
	n.logger.WarnContext(ctx, "this configuration is not applied and waits for forge apply --yes",
		"reason", held.Error(), "path", n.opts.file.path)
	if err := nodestore.New(n.pool).HoldConfig(ctx, n.self, held.Error()); err != nil {
		return err
	}
	n.broadcaster.broadcast()
	return nil
}

// awaitConfirmation runs on a node without a file. It reports when the unconfirmed
// configuration was applied.
func (n *Node) awaitConfirmation(ctx context.Context) error {
	ticker := time.NewTicker(confirmationInterval)
	defer ticker.Stop()
	for n.unconfirmedHash != "" {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		checking, cancel := context.WithTimeout(ctx, confirmationInterval)
		released, err := n.checkConfirmed(checking)
		cancel()
		if err != nil && ctx.Err() == nil {
			n.logger.DebugContext(ctx, "could not check whether the configuration was applied", "error", err)
		}
		if released {
			n.unconfirmedHash = ""
		}
	}
	<-ctx.Done()
	return nil
}

func (n *Node) checkConfirmed(ctx context.Context) (bool, error) {
	inForce, err := cronstore.New(n.pool).HashInForce(ctx)
	if err != nil || inForce != n.unconfirmedHash {
		return false, err
	}
	if err := nodestore.New(n.pool).ReleaseConfig(ctx, n.self); err != nil {
		return false, err
	}
	n.logger.InfoContext(ctx, "this configuration was applied", "hash", inForce)
	n.broadcaster.broadcast()
	return true, nil
}

// reviewEdit returns a *HeldError if an edited configuration needs confirmation.
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
	inForce, err := cronstore.New(n.pool).HashInForce(ctx)
	if err != nil || inForce == hash {
		return err
	}
	return &HeldError{Reason: "it has no crons, jobs, queues or alerts any more"}
}
