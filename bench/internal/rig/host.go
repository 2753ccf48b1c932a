package rig

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	neturl "net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// HostEnv holds the address of the server to measure on: postgres://USER@HOST/DATABASE.
const HostEnv = "BENCH_HOST"

// dropTimeout bounds the removal of a database.
const dropTimeout = 30 * time.Second

// clockTrials are the times that the server's clock is read: the fastest counts.
const clockTrials = 10

const (
	clusterSQL = `
SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname IN ('forge_nodes', 'forge_leaders') LIMIT 1`

	settingSQL = `SELECT current_setting($1)`
	clockSQL   = `SELECT clock_timestamp()`
)

// ErrRemote is returned for figures that need the server's processes.
var ErrRemote = errors.New("the server's processes are not on this machine")

// connect uses the server at an address. The database of the address is not touched.
func (r *Rig) connect(ctx context.Context, address string) (err error) {
	parsed, err := neturl.Parse(address)
	if err != nil || parsed.Scheme != "postgres" && parsed.Scheme != "postgresql" || parsed.Hostname() == "" {
		return errors.New("HOST: want the address of a server, postgres://USER@HOST/DATABASE")
	}
	r.url, r.prefix = address, "forge_bench_"+strings.ToLower(rand.Text()[:8])
	if r.admin, err = pgxpool.New(ctx, address); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	r.drop = func() error { return r.dropDatabases(context.WithoutCancel(ctx)) }
	var schema string
	switch err := r.admin.QueryRow(ctx, clusterSQL).Scan(&schema); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("connect to %s: %w", parsed.Host, err)
	default:
		return fmt.Errorf("the database %s on %s holds a forge cluster in the schema %s: name one without, on a server that does nothing else",
			strings.TrimPrefix(parsed.Path, "/"), parsed.Host, schema)
	}
}

// dropDatabases removes the databases that were made on a server at an address.
func (r *Rig) dropDatabases(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dropTimeout)
	defer cancel()
	var errs []error
	for _, name := range r.databases {
		if _, err := r.admin.Exec(ctx, "DROP DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
			errs = append(errs, fmt.Errorf("drop the database %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// ServerCPU returns the processor time that the server has used. It returns ErrRemote for
// a server at an address.
func (r *Rig) ServerCPU() (time.Duration, error) {
	if r.Server == nil {
		return 0, ErrRemote
	}
	return FamilyCPU(r.Server.PID())
}

// Checkpoint makes the server write its buffers, so that turns begin alike. A user that
// may not do that at an address measures without.
func (r *Rig) Checkpoint(ctx context.Context) error {
	_, err := r.admin.Exec(ctx, "CHECKPOINT")
	var refused *pgconn.PgError
	if r.Server == nil && errors.As(err, &refused) && refused.Code == "42501" { // insufficient_privilege
		return nil
	}
	if err != nil {
		return fmt.Errorf("make a checkpoint: %w", err)
	}
	return nil
}

// Setting returns a setting of the server.
func (r *Rig) Setting(ctx context.Context, name string) (value string, err error) {
	if err := r.admin.QueryRow(ctx, settingSQL, name).Scan(&value); err != nil {
		return "", fmt.Errorf("read the server's setting %s: %w", name, err)
	}
	return value, nil
}

// Describe adds what a run was measured on to its settings. Of a server at an address it
// names the settings that decide, and how far its clock is ahead of this machine's.
func (r *Rig) Describe(ctx context.Context, settings map[string]any) error {
	version, err := r.Setting(ctx, "server_version")
	if err != nil {
		return err
	}
	version, _, _ = strings.Cut(version, " ")
	settings["postgresql"], settings["machine"], settings["go"] = version, Machine(), runtime.Version()
	if r.Server != nil {
		return nil
	}
	ahead, err := r.clockAhead(ctx)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(r.wanted))
	for _, name := range []string{"max_connections", "max_wal_size", "shared_buffers", "synchronous_commit", "wal_compression"} {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var texts []string
	for _, name := range names {
		value, err := r.Setting(ctx, name)
		if err != nil {
			return err
		}
		texts = append(texts, name+" "+value)
	}
	settings["server"] = "at an address, not on this machine: " + strings.Join(texts, ", ")
	settings["server_clock_ahead"] = ahead.Round(10 * time.Microsecond).String()
	settings["server_cpu"] = "left out: " + ErrRemote.Error()
	return nil
}

// clockAhead compares the clocks at the fastest of some round trips.
func (r *Rig) clockAhead(ctx context.Context) (time.Duration, error) {
	var ahead, fastest time.Duration
	for range clockTrials {
		var at time.Time
		began := time.Now()
		if err := r.admin.QueryRow(ctx, clockSQL).Scan(&at); err != nil {
			return 0, fmt.Errorf("read the server's clock: %w", err)
		}
		if took := time.Since(began); took < cmp.Or(fastest, took+1) {
			fastest, ahead = took, at.Sub(began.Add(took/2))
		}
	}
	return ahead, nil
}
