package compactor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// ErrBusy means that other transactions prevented a change of a table; nothing was
// changed.
var ErrBusy = errors.New("others are at work on the table")

// codeLockNotAvailable is PostgreSQL's error code for a lock timeout.
const codeLockNotAvailable = "55P03"

// boundLocksSQL also keeps the commit, which holds the locks, from waiting for a synchronous
// replica. If a promotion loses the change, the next pass makes it again.
const boundLocksSQL = `SELECT set_config('lock_timeout', $1, true), set_config('synchronous_commit', 'local', true)`

// stamp is the time format in the names of partitions.
const stamp = "20060102_1504"

// proof is the constraint that makes it unnecessary for PostgreSQL to scan a
// partition when it gets an end.
const proof = "forge_ends"

// Newest returns the latest instant in a partition; zero if it is empty.
func (s *Store) Newest(ctx context.Context, partition, column string) (time.Time, error) {
	var at zeronull.Timestamptz
	err := s.db.QueryRow(ctx, fmt.Sprintf(`SELECT max(%s) FROM %s`, column, partition)).Scan(&at)
	return time.Time(at), err
}

// Promise makes a large partition reject rows from an instant on. Prove can then
// check without blocking writers that there are none, and Cut does not scan the
// partition under its lock. Rows are rejected until Cut or Withdraw. The store must be
// that of a transaction, as for Withdraw, Cut and Retire. wait and ErrBusy are as in Cut.
func (s *Store) Promise(ctx context.Context, partition, column string, end time.Time, wait time.Duration) error {
	if err := s.boundLocks(ctx, wait); err != nil {
		return err
	}
	return s.run(ctx, []string{
		fmt.Sprintf(`ALTER TABLE %s DROP CONSTRAINT IF EXISTS %s`, partition, proof),
		fmt.Sprintf(`ALTER TABLE %s ADD CONSTRAINT %s CHECK (%s < %s) NOT VALID`, partition, proof, column, literal(end)),
	})
}

// Prove validates the constraint that Promise added. The store must not be that of a
// transaction.
func (s *Store) Prove(ctx context.Context, partition string) error {
	return postgres.Exec(ctx, s.db, fmt.Sprintf("read where %s ends", partition), fmt.Sprintf(`ALTER TABLE %s VALIDATE CONSTRAINT %s`, partition, proof))
}

// Withdraw removes the constraint that Promise added, even if that was interrupted.
func (s *Store) Withdraw(ctx context.Context, partition string, wait time.Duration) error {
	var left bool
	err := s.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_constraint WHERE conrelid = $1::text::regclass AND conname = $2)`,
		partition, proof).Scan(&left)
	if err != nil || !left {
		return err
	}
	if err := s.boundLocks(ctx, wait); err != nil {
		return err
	}
	return s.run(ctx, []string{fmt.Sprintf(`ALTER TABLE %s DROP CONSTRAINT %s`, partition, proof)})
}

// Cut ends the last partition of a table at the first of some instants, and adds
// partitions that begin at each of them; the last of these is the new last
// partition. All tables are created beforehand, so that other transactions wait
// only for some milliseconds. Cut waits for other transactions for at most wait and
// then returns ErrBusy.
func (s *Store) Cut(ctx context.Context, table string, last Partition, cuts []time.Time, wait time.Duration) error {
	names := make([]string, len(cuts))
	for i, at := range cuts {
		names[i] = table + "_" + at.UTC().Format(stamp)
		if err := s.makeLike(ctx, table, names[i]); err != nil {
			return err
		}
	}
	if err := s.lockParts(ctx, table, wait, last); err != nil {
		return err
	}
	statements := []string{
		fmt.Sprintf(`ALTER TABLE %s DETACH PARTITION %s`, table, last.Name),
		attach(table, last.Name, last.From, cuts[0]),
	}
	for i, name := range names {
		end := time.Time{}
		if i+1 < len(cuts) {
			end = cuts[i+1]
		}
		statements = append(statements, attach(table, name, cuts[i], end))
	}
	statements = append(statements, fmt.Sprintf(`ALTER TABLE %s DROP CONSTRAINT IF EXISTS %s`, last.Name, proof))
	return s.run(ctx, statements)
}

// Keep moves the rows of one partition that have to be kept to another table, in the
// transaction of Retire. Other transactions wait meanwhile, so it only uses indexes.
type Keep func(ctx context.Context, from, to string) (rows int64, err error)

// Retire drops the first partitions of a table with all their rows, except those
// that keep moves to the new first partition. It returns the number of kept rows.
// wait and ErrBusy are as in Cut.
func (s *Store) Retire(ctx context.Context, table string, gone []Partition, wait time.Duration, keep Keep) (kept int64, err error) {
	end := gone[len(gone)-1].To
	name := table + "_until_" + end.UTC().Format(stamp)
	if len(gone) == 1 && gone[0].From.IsZero() {
		name += "_" + time.Now().UTC().Format(stamp) // it replaces a partition with the same end
	}
	if err := s.makeLike(ctx, table, name); err != nil {
		return 0, err
	}
	if err := s.lockParts(ctx, table, wait, gone...); err != nil {
		return 0, err
	}
	for _, p := range gone {
		// Detached, it has none of the table's triggers.
		if err := s.run(ctx, []string{fmt.Sprintf(`ALTER TABLE %s DETACH PARTITION %s`, table, p.Name)}); err != nil {
			return 0, err
		}
		rows, err := keep(ctx, p.Name, name)
		if err != nil {
			return 0, fmt.Errorf("keep rows of %s: %w", p.Name, err)
		}
		kept += rows
	}
	statements := []string{attach(table, name, time.Time{}, end)}
	for _, p := range gone {
		statements = append(statements, "DROP TABLE "+p.Name)
	}
	return kept, s.run(ctx, statements)
}

// makeLike creates a table that may become a partition.
func (s *Store) makeLike(ctx context.Context, table, name string) error {
	return s.run(ctx, []string{
		fmt.Sprintf(`CREATE TABLE %s (LIKE %s INCLUDING ALL)`, name, table),
		fmt.Sprintf(`SELECT forge_rights_as('%s', '%s')`, name, table),
	})
}

// lockParts first locks the table, which every statement uses, and then the
// partitions, which only maintenance such as VACUUM uses directly; it does not wait
// for that.
func (s *Store) lockParts(ctx context.Context, table string, wait time.Duration, parts ...Partition) error {
	if err := s.boundLocks(ctx, wait); err != nil {
		return err
	}
	statements := []string{fmt.Sprintf(`LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE`, table)}
	for _, p := range parts {
		statements = append(statements, fmt.Sprintf(`LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT`, p.Name))
	}
	return s.run(ctx, statements)
}

// boundLocks bounds how long the transaction waits for a lock, and how long it holds one.
func (s *Store) boundLocks(ctx context.Context, wait time.Duration) error {
	_, err := s.db.Exec(ctx, boundLocksSQL, strconv.FormatInt(wait.Milliseconds(), 10))
	return err
}

func attach(table, partition string, from, to time.Time) string {
	begin, end := "MINVALUE", "MAXVALUE"
	if !from.IsZero() {
		begin = literal(from)
	}
	if !to.IsZero() {
		end = literal(to)
	}
	return fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)`, table, partition, begin, end)
}

// literal formats an instant for SQL.
func literal(at time.Time) string { return at.UTC().Format("'2006-01-02 15:04:05Z'") }

func (s *Store) run(ctx context.Context, statements []string) error {
	for _, sql := range statements {
		_, err := s.db.Exec(ctx, sql)
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == codeLockNotAvailable {
			return fmt.Errorf("%s: %w", sql, ErrBusy)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}
