package jobstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Exchange is what a node's executor sends in one round trip and one transaction: the
// results of attempts, and the claims of offered jobs.
type Exchange struct {
	// Done are plain successes in the order of their ids. Others are the other results;
	// nil means none.
	Done   Successes
	Others *Results
	// Offers are the claims of jobs without a limit, in the order of their queues.
	Offers []Offer
}

// Successes are attempts that succeeded without other changes, by column.
type Successes struct {
	IDs ids
	// Ends are when the attempts ended, ClaimedAts when they were claimed; nil if unknown.
	Ends, ClaimedAts instants
}

// Exchanged receives the answer to an Exchange.
type Exchanged struct {
	// Completed are the ids of the successes that were written.
	Completed []int64
	// Rows are the current rows of the other results.
	Rows []ResultRow
}

// BatchConn is a connection or a pool.
type BatchConn interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Exchange writes results and claims jobs. It calls claimed for each claimed row, with the
// index of its offer; the row is valid only during the call. If Exchange returns an error,
// it is unknown whether anything was written or claimed. As in SetState, a result that
// was only read waits for the synchronous replicas.
func (c *Client) Exchange(ctx context.Context, conn BatchConn, e *Exchange, claimed func(offer int, row *Row) error) (done Exchanged, err error) {
	batch := &pgx.Batch{}
	if len(e.Done.IDs) > 0 {
		batch.Queue(fenced(completeSQL), c.completeArgs(e.Done))
	}
	if e.Others != nil {
		batch.Queue(fenced(c.setStateSQL), c.resultArgs(*e.Others))
	}
	for _, offer := range e.Offers {
		batch.Queue(claimSQL, c.claimArgs(offer))
	}
	sent := conn.SendBatch(ctx, batch)
	onlyRead, err := e.read(sent, &done, claimed)
	if err := errors.Join(err, sent.Close()); err != nil {
		return Exchanged{}, err
	}
	if onlyRead {
		err = postgres.Confirm(ctx, conn)
	}
	return done, err
}

func (e *Exchange) read(sent pgx.BatchResults, done *Exchanged, claimed func(int, *Row) error) (onlyRead bool, err error) {
	if len(e.Done.IDs) > 0 {
		rows, err := sent.Query()
		if err != nil {
			return false, err
		}
		done.Completed, err = readIDs(rows, len(e.Done.IDs))
		if err != nil {
			return false, err
		}
	}
	if e.Others != nil {
		rows, err := sent.Query()
		if err != nil {
			return false, err
		}
		done.Rows, onlyRead, err = collectResults(rows)
		if err != nil {
			return false, err
		}
	}
	for i := range e.Offers {
		rows, err := sent.Query()
		if err != nil {
			return false, err
		}
		if err := readRows(rows, func(row *Row) error { return claimed(i, row) }); err != nil {
			return false, err
		}
	}
	return onlyRead, nil
}
