// Package migrations brings a database to the schema that this binary needs:
// River's tables first, then forge's own beside them.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
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

// New returns a Migrator. The pool needs room for two connections.
func New(pool *pgxpool.Pool, logger *slog.Logger) *Migrator {
	return &Migrator{pool: pool, logger: logger}
}

// Up applies what is missing, under a lock, and does nothing when all is there.
// A database that a newer binary migrated gives ErrNewerSchema, unchanged.
func (m *Migrator) Up(ctx context.Context) error {
	if err := m.Check(ctx); !errors.Is(err, ErrPending) {
		return err
	}
	return m.locked(ctx, func() error {
		if err := m.Check(ctx); !errors.Is(err, ErrPending) {
			return err
		}
		river, err := m.river()
		if err != nil {
			return err
		}
		if _, err := river.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return fmt.Errorf("migrate River's tables: %w", err)
		}
		return m.withGoose(func(provider *goose.Provider) error {
			_, err := provider.Up(ctx)
			if err != nil {
				return fmt.Errorf("migrate forge's tables: %w", err)
			}
			return nil
		})
	})
}

// Down takes back forge's newest migration; River's tables and jobs stay.
func (m *Migrator) Down(ctx context.Context) error {
	return m.locked(ctx, func() error {
		return m.withGoose(func(provider *goose.Provider) error {
			_, err := provider.Down(ctx)
			if errors.Is(err, goose.ErrNoNextVersion) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("take back a migration: %w", err)
			}
			return nil
		})
	})
}

// Check returns nil when the schema is exactly this binary's, ErrPending when
// it is older and ErrNewerSchema when it is newer. It only reads.
func (m *Migrator) Check(ctx context.Context) error {
	steps, err := m.Status(ctx)
	if err != nil {
		return err
	}
	newest, err := m.newestApplied(ctx)
	if err != nil {
		return err
	}
	pending := false
	known := map[string]int64{}
	for _, step := range steps {
		known[step.Source] = max(known[step.Source], step.Version)
		pending = pending || !step.Applied
	}
	for source, version := range newest {
		if version > known[source] {
			return fmt.Errorf("%w: %s's migration %d is applied, this binary knows up to %d; use a newer forge",
				ErrNewerSchema, source, version, known[source])
		}
	}
	if pending {
		return ErrPending
	}
	return nil
}

// Status lists every migration that this binary knows, in order.
func (m *Migrator) Status(ctx context.Context) ([]Step, error) {
	steps, err := m.riverStatus(ctx)
	if err != nil {
		return nil, err
	}
	err = m.withGoose(func(provider *goose.Provider) error {
		applied, err := m.appliedForge(ctx)
		if err != nil {
			return err
		}
		for _, source := range provider.ListSources() {
			steps = append(steps, Step{
				Source: "forge", Version: source.Version, Name: source.Path, Applied: applied[source.Version],
			})
		}
		return nil
	})
	return steps, err
}

func (m *Migrator) river() (*rivermigrate.Migrator[pgx.Tx], error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(m.pool), &rivermigrate.Config{Logger: m.logger})
	if err != nil {
		return nil, fmt.Errorf("prepare River's migrations: %w", err)
	}
	return migrator, nil
}

func (m *Migrator) riverStatus(ctx context.Context) ([]Step, error) {
	river, err := m.river()
	if err != nil {
		return nil, err
	}
	existing, err := river.ExistingVersions(ctx)
	if err != nil {
		return nil, fmt.Errorf("read River's migrations: %w", err)
	}
	applied := map[int]bool{}
	for _, version := range existing {
		applied[version.Version] = true
	}
	var steps []Step
	for _, version := range river.AllVersions() {
		steps = append(steps, Step{
			Source: "river", Version: int64(version.Version), Name: version.Name, Applied: applied[version.Version],
		})
	}
	return steps, nil
}

const (
	tableExistsSQL = `SELECT to_regclass($1) IS NOT NULL`
	appliedSQL     = `SELECT version_id FROM ` + table + ` WHERE version_id > 0 AND is_applied`
	riverNewestSQL = `SELECT coalesce(max(version), 0) FROM river_migration WHERE line = 'main'`
)

func (m *Migrator) exists(ctx context.Context, name string) (bool, error) {
	var exists bool
	if err := m.pool.QueryRow(ctx, tableExistsSQL, name).Scan(&exists); err != nil {
		return false, fmt.Errorf("look for table %s: %w", name, err)
	}
	return exists, nil
}

func (m *Migrator) appliedForge(ctx context.Context) (map[int64]bool, error) {
	applied := map[int64]bool{}
	if exists, err := m.exists(ctx, table); err != nil || !exists {
		return applied, err
	}
	rows, err := m.pool.Query(ctx, appliedSQL)
	if err != nil {
		return nil, fmt.Errorf("read forge's migrations: %w", err)
	}
	versions, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("read forge's migrations: %w", err)
	}
	for _, version := range versions {
		applied[version] = true
	}
	return applied, nil
}

func (m *Migrator) newestApplied(ctx context.Context) (map[string]int64, error) {
	newest := map[string]int64{}
	forge, err := m.appliedForge(ctx)
	if err != nil {
		return nil, err
	}
	for version := range forge {
		newest["forge"] = max(newest["forge"], version)
	}
	exists, err := m.exists(ctx, "river_migration")
	if err != nil || !exists {
		return newest, err
	}
	var river int64
	if err := m.pool.QueryRow(ctx, riverNewestSQL).Scan(&river); err != nil {
		return nil, fmt.Errorf("read River's migrations: %w", err)
	}
	newest["river"] = river
	return newest, nil
}

// withGoose hands out a provider over the same pool; goose speaks database/sql.
func (m *Migrator) withGoose(work func(*goose.Provider) error) error {
	db := stdlib.OpenDBFromPool(m.pool)
	defer func() { _ = db.Close() }()
	provider, err := newProvider(db)
	if err != nil {
		return err
	}
	return work(provider)
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(table), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return nil, fmt.Errorf("prepare forge's migrations: %w", err)
	}
	return provider, nil
}

// locked runs work while one session holds the migration lock. The lock belongs
// to the session, so a crash frees it.
func (m *Migrator) locked(ctx context.Context, work func() error) error {
	conn, err := m.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to migrate: %w", err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, lockID); err != nil {
		return fmt.Errorf("lock the migrations: %w", err)
	}
	defer func() {
		if _, err := conn.Exec(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, lockID); err != nil {
			_ = conn.Conn().Close(context.WithoutCancel(ctx)) // a closed session holds no lock
		}
	}()
	return work()
}
