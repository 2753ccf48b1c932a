// Package migrations brings a database to the schema that this binary needs:
// River's tables first, then forge's own beside them.
//
// Forge's first migration is the baseline. Databases of unreleased builds have the
// migrations that it replaces, with lower numbers. If they have the last of these, which
// has the baseline's number, they go on from there. Older ones are refused.
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/forge-scheduler/forge/internal/watchdog"
)

// table is where goose keeps which of forge's migrations were applied.
const table = "forge_migrations"

// lockID serialises every migration run of a database: ten nodes may start at
// once. It lies beside the roles' lock ids.
const lockID int64 = 0x464F524745_00FF

// ErrNewerSchema says that a newer binary has migrated this database.
var ErrNewerSchema = errors.New("the database's schema is newer than this binary")

// ErrPending says that migrations are missing.
var ErrPending = errors.New("the database's schema is older than this binary")

// ErrTooOld says that the database has only migrations that the baseline replaced.
var ErrTooOld = errors.New("the database's schema is too old for this binary")

// baseline is the number of forge's first migration.
const baseline = 63

//go:embed *.sql
var files embed.FS

// Files are forge's own migrations, for printing and for hashing.
func Files() fs.FS { return files }

// Step is one migration and whether it is applied.
type Step struct {
	Source  string `json:"source"` // river or forge
	Version int64  `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
}

// Migrator runs migrations on one database.
type Migrator struct {
	pool   *pgxpool.Pool
	logger *slog.Logger
}

// New returns a Migrator. Up and Down need a pool of two connections or more:
// one holds the lock while the other works.
func New(pool *pgxpool.Pool, logger *slog.Logger) *Migrator {
	return &Migrator{pool: pool, logger: logger}
}

// Up applies what is missing, under a lock, and does nothing when all is there.
// A database that a newer binary migrated gives ErrNewerSchema, and one from before the
// baseline ErrTooOld; both are unchanged.
func (m *Migrator) Up(ctx context.Context) error {
	if err := m.Check(ctx); !errors.Is(err, ErrPending) {
		return err
	}
	return m.locked(ctx, func() error {
		// Another process may have done it while this one waited.
		if err := m.Check(ctx); !errors.Is(err, ErrPending) {
			return err
		}
		return m.retryLocks(ctx, func() error {
			if err := m.upRiver(ctx); err != nil {
				return err
			}
			return m.upForge(ctx)
		})
	})
}

// Down takes back forge's newest migration, and does nothing when there is
// none; River's tables and jobs stay. It refuses what Up refuses.
func (m *Migrator) Down(ctx context.Context) error {
	return m.locked(ctx, func() error {
		if err := m.Check(ctx); err != nil && !errors.Is(err, ErrPending) {
			return err
		}
		newest, err := m.newest(ctx)
		if err != nil || newest == 0 {
			return err
		}
		provider, closeDB, err := m.goose()
		if err != nil {
			return err
		}
		defer closeDB()
		if err := m.retryLocks(ctx, func() error {
			_, err := provider.ApplyVersion(ctx, newest, false)
			return err
		}); err != nil {
			return m.explain("take back a migration", err)
		}
		m.logger.InfoContext(ctx, "migration taken back", "source", "forge", "version", newest)
		return nil
	})
}

// Check returns nil when the schema is exactly this binary's, ErrPending, with
// what is missing, when it is older, ErrTooOld when it is from before the baseline, and
// ErrNewerSchema when it has a migration that this binary does not know. It only reads.
func (m *Migrator) Check(ctx context.Context) error {
	known, err := m.known()
	if err != nil {
		return err
	}
	applied, err := m.applied(ctx)
	if err != nil {
		return err
	}
	if err := replaced(applied); err != nil {
		return err
	}
	return verdict(known, applied)
}

// Status lists every migration that this binary knows, in order. It only reads.
func (m *Migrator) Status(ctx context.Context) ([]Step, error) {
	steps, err := m.known()
	if err != nil {
		return nil, err
	}
	applied, err := m.applied(ctx)
	if err != nil {
		return nil, err
	}
	for i, step := range steps {
		steps[i].Applied = applied[id{step.Source, step.Version}]
	}
	return steps, nil
}

// id names a migration, applied or known.
type id struct {
	source  string
	version int64
}

// squashed has the numbers of the migrations that the baseline replaced.
var squashed = []int64{
	1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
	26, 33, 34, 35, 40, 42, 45, 46, 47, 50, 51, 55, 60, 61, 62,
}

// replaced removes the replaced migrations from those that are applied. Without the
// baseline's number they give ErrTooOld.
func replaced(applied map[id]bool) error {
	var newest int64
	for _, version := range squashed {
		if migration := (id{"forge", version}); applied[migration] {
			newest = version
			delete(applied, migration)
		}
	}
	if newest > 0 && !applied[id{"forge", baseline}] {
		return fmt.Errorf("%w: its newest migration of forge is %d, and this binary upgrades from %d on; "+
			"first run forge migrate up of an earlier build, one whose newest migration is %d", ErrTooOld, newest, baseline, baseline)
	}
	return nil
}

// verdict compares what a binary knows with what a database has. An applied
// migration that is unknown wins over one that is missing: another binary owns
// the schema then, and this one must not touch it.
func verdict(known []Step, applied map[id]bool) error {
	knows := map[id]bool{}
	newest := map[string]int64{}
	var missing []id
	for _, step := range known {
		migration := id{step.Source, step.Version}
		knows[migration] = true
		newest[step.Source] = max(newest[step.Source], step.Version)
		if !applied[migration] {
			missing = append(missing, migration)
		}
	}
	for migration := range applied {
		if migration.version > newest[migration.source] {
			return fmt.Errorf("%w: %s's migration %d is applied, this binary knows up to %d; use a newer forge",
				ErrNewerSchema, migration.source, migration.version, newest[migration.source])
		}
		if !knows[migration] {
			return fmt.Errorf("%w: %s's migration %d is applied, which this binary does not know; use the forge that applied it, or a newer one",
				ErrNewerSchema, migration.source, migration.version)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s missing", ErrPending, list(missing))
	}
	return nil
}

// shownMissing is how many missing migrations a message names.
const shownMissing = 5

// list names migrations: "forge's 33, 34 are", "river's 6 and 20 more are".
func list(missing []id) string {
	var b strings.Builder
	for i, migration := range missing[:min(len(missing), shownMissing)] {
		switch {
		case i == 0 || missing[i-1].source != migration.source:
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s's %d", migration.source, migration.version)
		default:
			fmt.Fprintf(&b, ", %d", migration.version)
		}
	}
	if more := len(missing) - shownMissing; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	if len(missing) == 1 {
		return "migration " + b.String() + " is"
	}
	return "migrations " + b.String() + " are"
}

// known lists the migrations of this binary, none marked as applied.
func (m *Migrator) known() ([]Step, error) {
	river, err := m.river()
	if err != nil {
		return nil, err
	}
	var steps []Step
	for _, version := range river.AllVersions() {
		steps = append(steps, Step{Source: "river", Version: int64(version.Version), Name: version.Name})
	}
	provider, closeDB, err := m.goose()
	if err != nil {
		return nil, err
	}
	defer closeDB()
	for _, source := range provider.ListSources() {
		steps = append(steps, Step{Source: "forge", Version: source.Version, Name: source.Path})
	}
	return steps, nil
}

const (
	tableExistsSQL  = `SELECT to_regclass($1) IS NOT NULL`
	forgeAppliedSQL = `SELECT version_id FROM ` + table + ` WHERE version_id > 0 AND is_applied`

	// River's first four migrations have no column line; reading the row as JSON
	// serves both layouts, also in the midst of another process's run.
	riverAppliedSQL = `SELECT version FROM river_migration r WHERE coalesce(to_jsonb(r) ->> 'line', 'main') = 'main'`
)

// applied reads which migrations the database has, River's and forge's.
// Rivermigrate's own reader fails on versions that it does not know.
func (m *Migrator) applied(ctx context.Context) (map[id]bool, error) {
	applied := map[id]bool{}
	for _, from := range []struct{ source, table, sql string }{
		{"river", "river_migration", riverAppliedSQL},
		{"forge", table, forgeAppliedSQL},
	} {
		versions, err := m.versions(ctx, from.table, from.sql)
		if err != nil {
			return nil, m.explain("read the migrations in "+from.table, err)
		}
		for _, version := range versions {
			applied[id{from.source, version}] = true
		}
	}
	return applied, nil
}

func (m *Migrator) versions(ctx context.Context, table, sql string) ([]int64, error) {
	var exists bool
	if err := m.pool.QueryRow(ctx, tableExistsSQL, table).Scan(&exists); err != nil || !exists {
		return nil, err
	}
	rows, err := m.pool.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

func (m *Migrator) river() (*rivermigrate.Migrator[pgx.Tx], error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(m.pool),
		&rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("prepare River's migrations: %w", err)
	}
	return migrator, nil
}

func (m *Migrator) upRiver(ctx context.Context) error {
	river, err := m.river()
	if err != nil {
		return err
	}
	result, err := river.Migrate(ctx, rivermigrate.DirectionUp, nil)
	if err != nil {
		return m.explain("migrate River's tables", err)
	}
	for _, version := range result.Versions {
		m.logger.InfoContext(ctx, "migration applied", "source", "river", "version", version.Version)
	}
	return nil
}

func (m *Migrator) upForge(ctx context.Context) error {
	provider, closeDB, err := m.goose()
	if err != nil {
		return err
	}
	defer closeDB()
	results, err := provider.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		results = partial.Applied
	}
	for _, result := range results {
		m.logger.InfoContext(ctx, "migration applied", "source", "forge", "version", result.Source.Version)
	}
	if err != nil {
		return m.explain("migrate forge's tables", err)
	}
	return nil
}

// goose returns a provider over the same pool; goose speaks database/sql.
func (m *Migrator) goose() (provider *goose.Provider, closeDB func(), err error) {
	db := stdlib.OpenDBFromPool(m.pool)
	closeDB = func() { _ = db.Close() } // returns nothing of the pool's: it stays open
	provider, err = goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(table), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		closeDB()
		return nil, nil, fmt.Errorf("prepare forge's migrations: %w", err)
	}
	return provider, closeDB, nil
}

// The lock lives in a transaction, so that it also works through a transaction
// pooler and a crash frees it. Nothing ever waits inside PostgreSQL for it: a
// waiting statement holds a snapshot, and an index that is built CONCURRENTLY
// waits for every snapshot. The holder idles in its transaction while another
// connection works; a pool's idle timeout must not end it.
const lockSQL = `SELECT pg_try_advisory_xact_lock($1)`

// idleSQL comes after it for a second reason: PostgreSQL keeps a statement's snapshot
// until the session's next one, and this one takes none.
const idleSQL = `SET LOCAL idle_in_transaction_session_timeout = 0`

// lockPoll is the time between two tries to take the lock.
const lockPoll = 50 * time.Millisecond

// locked runs work while this process holds the migration lock, and waits for
// it until ctx ends.
func (m *Migrator) locked(ctx context.Context, work func() error) error {
	if m.pool.Config().MaxConns < 2 {
		return errors.New("migrations need a pool of two connections or more: raise database.pool_size")
	}
	for {
		held, err := m.tryLocked(ctx, work)
		if held || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for another process that migrates: %w", ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}

func (m *Migrator) tryLocked(ctx context.Context, work func() error) (held bool, err error) {
	err = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, lockSQL, lockID).Scan(&held); err != nil {
			return fmt.Errorf("lock the migrations: %w", err)
		}
		if !held {
			return nil
		}
		if _, err := tx.Exec(ctx, idleSQL); err != nil {
			return fmt.Errorf("keep the lock of the migrations: %w", err)
		}
		return work()
	})
	return held, err
}

const (
	// lockTries is how often a migration may fail to get its locks.
	lockTries = 20
	// lockPause is the time between two tries.
	lockPause = 250 * time.Millisecond
)

// retryLocks repeats migrate while it fails to get its locks. Nodes of the previous version
// work during a migration. If they and the migration wait for each other's locks, PostgreSQL
// fails one of them. A failed migration is rolled back.
func (m *Migrator) retryLocks(ctx context.Context, migrate func() error) error {
	for try := 1; ; try++ {
		err := migrate()
		if !lacksLock(err) || try == lockTries {
			return err
		}
		m.logger.WarnContext(ctx, "migration could not get its locks and is repeated", "try", try, "tries", lockTries, "error", err)
		if !watchdog.Sleep(ctx, lockPause) {
			return err
		}
	}
}

// lacksLock says that a statement was the victim of a deadlock, or reached its role's
// lock_timeout.
func lacksLock(err error) bool {
	failed, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (failed.Code == "40P01" || failed.Code == "55P03") // deadlock_detected, lock_not_available
}

// explain wraps err with the operation, and with the remedy where the schema is missing.
func (m *Migrator) explain(operation string, err error) error {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "3F000" { // invalid_schema_name
		return fmt.Errorf("%s: the search_path of role %q names no schema that exists; run CREATE SCHEMA first: %w",
			operation, m.pool.Config().ConnConfig.User, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}
