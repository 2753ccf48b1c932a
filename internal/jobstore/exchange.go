package jobstore

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// resultLockTimeoutSQL bounds the wait of WriteResults for a row that another transaction has
// locked, because the other results wait with it.
const resultLockTimeoutSQL = `SELECT ` + rowLockTimeoutSQL

// lockNotAvailable is the SQLSTATE of a statement that lock_timeout has ended.
const lockNotAvailable = "55P03"

// notedTogether is how many jobs a row of forge_claims lists. PostgreSQL would compress longer
// rows, which takes longer than to write several.
const notedTogether = 200

// Successes are attempts that succeeded without other changes, by column.
type Successes struct {
	IDs ids
	// Ends are when the attempts ended, ClaimedAts when they were claimed; nil if unknown.
	Ends, ClaimedAts instants
}

// Written is the answer to WriteResults.
type Written struct {
	// Completed are the ids of the successes that were written.
	Completed []int64
	// Rows are the current rows of the other results.
	Rows []ResultRow
}

// WriteResults writes the results of attempts in one round trip and one transaction: plain
// successes in the order of their ids, and other results; nil means none. If it returns an
// error, it is unknown whether anything was written, except if IsLocked: then nothing was. As
// in SetState, a result that was only read waits for the synchronous replicas.
func (c *Client) WriteResults(ctx context.Context, done Successes, others *Results) (w Written, err error) {
	batch := &pgx.Batch{}
	batch.Queue(resultLockTimeoutSQL)
	if len(done.IDs) > 0 {
		batch.Queue(fenced(completeSQL), c.completeArgs(done))
	}
	if others != nil {
		batch.Queue(fenced(c.setStateSQL), c.resultArgs(*others))
	}
	conn, err := c.pool.Acquire(ctx) // so that the server that was read confirms it
	if err != nil {
		return Written{}, err
	}
	defer conn.Release()
	sent := conn.SendBatch(ctx, batch)
	onlyRead, err := w.read(sent, len(done.IDs), others)
	if err := cmp.Or(err, sent.Close()); err != nil {
		return Written{}, err
	}
	if onlyRead {
		err = postgres.Confirm(ctx, conn)
	}
	return w, err
}

func (w *Written) read(sent pgx.BatchResults, done int, others *Results) (onlyRead bool, err error) {
	if _, err := sent.Exec(); err != nil {
		return false, err
	}
	if done > 0 {
		rows, err := sent.Query()
		if err != nil {
			return false, err
		}
		if w.Completed, err = readIDs(rows, done); err != nil {
			return false, err
		}
	}
	if others == nil {
		return false, nil
	}
	rows, err := sent.Query()
	if err != nil {
		return false, err
	}
	w.Rows, onlyRead, err = collectResults(rows, len(others.IDs))
	return onlyRead, err
}

// IsLocked reports whether WriteResults or ClaimOffers has failed because another transaction has
// locked one of the rows.
func IsLocked(err error) bool {
	rejected, ok := errors.AsType[*pgconn.PgError](err)
	return ok && rejected.Code == lockNotAvailable
}

// IsUnstorable reports whether WriteResults or SetState has failed because PostgreSQL rejects a
// value of one of the results. Then nothing was written, and a repetition would fail too.
func IsUnstorable(err error) bool {
	const dataException, programLimitExceeded = "22", "54"
	rejected, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(rejected.Code, dataException) || strings.HasPrefix(rejected.Code, programLimitExceeded))
}

// ClaimOffers claims offered jobs without a limit in one round trip and one transaction. It
// calls claimed for each claimed row, with the index of its offer; the row is valid only during
// the call. If ClaimOffers returns an error, it is unknown whether anything was claimed, except
// if IsLocked: then nothing was, and ClaimUnlocked claims the other jobs.
func (c *Client) ClaimOffers(ctx context.Context, offers []Offer, claimed func(offer int, row *Row) error) error {
	return c.claimOffers(ctx, claimSQL, c.claimArgs, offers, claimed)
}

// ClaimUnlocked is like ClaimOffers, but leaves the jobs whose rows another transaction has
// locked. It takes longer.
func (c *Client) ClaimUnlocked(ctx context.Context, offers []Offer, claimed func(offer int, row *Row) error) error {
	return c.claimOffers(ctx, claimUnlockedSQL, c.claimArgs, offers, claimed)
}

// claimOffers notes and claims offers by a statement, with the arguments that args returns for each.
func (c *Client) claimOffers(
	ctx context.Context, sql string, args func(Offer) pgx.StrictNamedArgs, offers []Offer, claimed func(offer int, row *Row) error,
) error {
	batch := &pgx.Batch{}
	batch.Queue(shareLimitsSQL)
	notes := 1
	for _, offer := range offers {
		for from := 0; from < len(offer.IDs); from += notedTogether {
			batch.Queue(noteOfferedSQL, c.noteArgs(offer, from, min(from+notedTogether, len(offer.IDs))))
			notes++
		}
	}
	for _, offer := range offers {
		batch.Queue(sql, args(offer))
	}
	sent := c.pool.SendBatch(ctx, batch)
	return cmp.Or(readClaims(sent, notes, len(offers), claimed), sent.Close())
}

// noteArgs returns the arguments of noteOfferedSQL for the jobs of an offer between two indexes.
func (c *Client) noteArgs(o Offer, from, to int) pgx.StrictNamedArgs {
	limited, locks := ids{}, ids{}
	for i := from; i < to && i < len(o.Locks); i++ {
		for _, lock := range o.Locks[i] {
			limited, locks = append(limited, o.IDs[i]), append(locks, lock)
		}
	}
	return pgx.StrictNamedArgs{"client": c.of.ClientID, "ids": ids(o.IDs[from:to]), "limited_ids": limited, "limit_locks": locks}
}

func readClaims(sent pgx.BatchResults, notes, offers int, claimed func(offer int, row *Row) error) error {
	for range notes {
		if _, err := sent.Exec(); err != nil {
			return err
		}
	}
	for i := range offers {
		rows, err := sent.Query()
		if err != nil {
			return err
		}
		if err := readRows(rows, func(row *Row) error { return claimed(i, row) }); err != nil {
			return err
		}
	}
	return nil
}
