package compactor

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

const (
	// longRebuild is the timeout for rebuilding one index, which waits for every
	// older transaction.
	longRebuild = 5 * time.Minute
	// rebuildAgain is the minimum time between two rebuilds of an index: if it
	// grows again that soon, another rebuild does not help.
	rebuildAgain = 24 * time.Hour
)

// rebuild rebuilds at most one index that has grown far beyond its content, for
// example after a large backlog. It runs outside any transaction, so it is neither
// fenced nor batched; it does not matter which process does it, nor whether it
// completes.
func (p *pass) rebuild(ctx context.Context) error {
	var grown []Index
	err := p.do(ctx, func(tx pgx.Tx, _ time.Time) (err error) {
		grown, err = Bloated(ctx, tx, p.opts.LeastIndex)
		return err
	})
	if err != nil {
		return err
	}
	for _, index := range grown {
		if last, done := p.rebuilt[index.Name]; done && time.Since(last) < rebuildAgain {
			continue
		}
		p.rebuilt[index.Name] = time.Now()
		return p.rebuildOne(ctx, index)
	}
	return nil
}

func (p *pass) rebuildOne(ctx context.Context, index Index) error {
	watchdog.Extend(ctx, longRebuild+longBatch)
	bounded, cancel := context.WithTimeout(ctx, longRebuild)
	defer cancel()
	bytes, err := Rebuild(bounded, p.db, index)
	if err != nil {
		return err
	}
	return p.do(ctx, func(tx pgx.Tx, _ time.Time) error {
		return eventstore.Append(ctx, tx, eventstore.Event{
			Type: eventstore.IndexRebuilt, NodeID: p.fence.NodeID, Role: p.fence.Role, Term: p.fence.Term,
		}, map[string]any{"index": index.Name, "bytes_before": index.Bytes, "bytes": bytes})
	})
}
