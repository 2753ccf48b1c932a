package forge

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

// operator implements the operations of the pages and the API, as the commands do.
type operator struct {
	broadcaster *broadcaster
	pool        postgres.DB
}

func (n *Node) operator(db postgres.DB) operator { return operator{n.broadcaster, db} }

func (o operator) HandOver(ctx context.Context, role, target, by string) (leaderstore.Leader, bool, error) {
	return handover.Request(ctx, o.pool, role, target, by)
}

func (o operator) Drain(ctx context.Context, node, by string) ([]leaderstore.Leader, error) {
	return handover.Drain(ctx, o.pool, node, by)
}

func (o operator) Undrain(ctx context.Context, node, by string) error {
	return handover.Undrain(ctx, o.pool, node, by)
}

// drillTimeout is how long a drill waits for the successor.
const drillTimeout = 30 * time.Second

func (o operator) Drill(ctx context.Context, role, by string) (handover.DrillResult, error) {
	changed, cancel := o.broadcaster.Subscribe()
	defer cancel()
	return handover.Drill(ctx, o.pool, changeWaiter(changed), handover.Params{Role: role, By: by, Within: drillTimeout})
}
