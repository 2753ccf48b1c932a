package main

import (
	"context"
	"fmt"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/test/parts"
)

// measurePromotions kills a primary and promotes its replica; each trial has a
// cluster of its own.
func measurePromotions(ctx context.Context, b *bench) error {
	for trial := range b.promotions {
		err := b.withCluster(ctx, false, func(c *cluster) error { return c.promotion(ctx) })
		if err != nil {
			return fmt.Errorf("trial %d: %w", trial+1, err)
		}
	}
	return nil
}

func (c *cluster) promotion(ctx context.Context) error {
	if err := c.replicate(ctx); err != nil {
		return err
	}
	if err := c.startNodes(ctx); err != nil {
		return err
	}
	_, term, err := c.ready(ctx)
	if err != nil {
		return err
	}
	if err := c.server.Stop(devcluster.StopKill); err != nil {
		return fmt.Errorf("kill the primary: %w", err)
	}
	c.server = nil
	writable, err := parts.Promote(ctx, c.replica.URL())
	if err != nil {
		return err
	}
	m, err := c.successor(ctx, term, writable)
	if err != nil {
		return err
	}
	if err := c.lastWork(ctx, term, &m); err != nil {
		return err
	}
	c.record([]string{"promote"}, m)
	return nil
}
