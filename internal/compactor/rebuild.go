package compactor

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/compactstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/progress"
)

const (
	// longRebuild is how long the rebuilding of one index may take: it waits for
	// every transaction that is older.
	longRebuild = 5 * time.Minute
	// rebuildAgain is how long an index is left as it is after that: what fills it
	// again that soon will fill it once more.
	rebuildAgain = 24 * time.Hour
)

// rebuild builds at most one index anew, of those that have grown far beyond what
// they hold: after a large backlog, say. Neither a fence nor a batch is possible, as
// it runs in no transaction; nothing depends on who does it, nor on whether it ends.
func (p *pass) rebuild(ctx context.Context) error {
	var grown []compactstore.Index
	err := p.do(ctx, func(tx pgx.Tx, _ time.Time) (err error) {
		grown, err = compactstore.Bloated(ctx, tx, p.opts.LeastIndex)
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

func (p *pass) rebuildOne(ctx context.Context, index compactstore.Index) error {
	progress.Allow(ctx, longRebuild+longBatch)
	bounded, cancel := context.WithTimeout(ctx, longRebuild)
	defer cancel()
	bytes, err := compactstore.Rebuild(bounded, p.db, index)
	if err != nil {
		return err
	}
	return p.do(ctx, func(tx pgx.Tx, _ time.Time) error {
		return eventstore.Append(ctx, tx, eventstore.Event{
			Type: eventstore.IndexRebuilt, NodeID: p.fence.NodeID, Role: p.fence.Role, Term: p.fence.Term,
		}, map[string]any{"index": index.Name, "bytes_before": index.Bytes, "bytes": bytes})
	})
}
