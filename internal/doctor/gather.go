package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/engine"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/migrations"
	"github.com/forge-scheduler/forge/roles"
)

// Only this file reads the catalogue; the packages that own forge's tables read those.
const (
	// A statement that waits for a lock would wait for as long as another session holds it.
	sessionSQL = `
SELECT set_config('search_path', $1, false), set_config('lock_timeout', '2s', false), set_config('statement_timeout', '0', false),
       set_config('standard_conforming_strings', 'on', false)`

	// Without pg_read_all_stats, backend_type is null for the sessions of other users.
	serverSQL = `
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
       current_setting('server_encoding'), current_user,
       current_setting('max_connections')::int,
       (SELECT count(*) FROM pg_stat_activity WHERE usesysid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'),
       current_setting('autovacuum')::bool, current_setting('fsync')::bool,
       pg_database_size(current_database()),
       (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names'),
       ARRAY (SELECT DISTINCT usename::text FROM pg_stat_activity
              WHERE datname = current_database() AND application_name LIKE 'forge:%'
                AND NOT pg_has_role(usesysid, 'MEMBER') AND NOT pg_has_role('pg_signal_backend', 'MEMBER')
              ORDER BY 1),
       current_database(), has_database_privilege('public', current_database(), 'CONNECT'),
       ARRAY (SELECT rolname::text FROM pg_roles
              WHERE rolcanlogin AND NOT rolsuper AND rolname <> session_user AND rolname <> current_user
                AND has_database_privilege(oid, current_database(), 'CONNECT')
              ORDER BY 1 LIMIT 5)`

	schemaSQL = `
SELECT coalesce((SELECT pg_get_userbyid(relowner) FROM pg_class
                 WHERE relnamespace = to_regnamespace($1) AND relname = 'forge_leaders'), ''),
       coalesce((SELECT pg_has_role(relowner, 'USAGE') FROM pg_class
                 WHERE relnamespace = to_regnamespace($1) AND relname = 'forge_leaders'), true)`
)

// lockNotAvailable is PostgreSQL's error code of a statement that lock_timeout ended.
const lockNotAvailable = "55P03"

// Gather collects all facts but those of Kubernetes. A fact that cannot be read stays empty, with the reason in
// Facts.Err or Link.Err.
func Gather(ctx context.Context, cfg *config.Config, warnings []config.Problem) Facts {
	f := Facts{Config: cfg, Warnings: warnings}
	f.Pool = probe(ctx, poolURL, cfg.Database.URL)
	f.Election = f.Pool
	if cfg.Database.LeaderURL != cfg.Database.URL {
		f.Election = probe(ctx, leaderURL, cfg.Database.LeaderURL)
	}
	if f.Election.Err == nil && !f.Election.Shared {
		f.Election.IdleEnded = probeIdle(ctx, cfg.Database.LeaderURL)
	}
	if f.Pool.Err == nil && f.Election.Err == nil {
		options := engine.Options{URL: cfg.Database.URL, LeaderURL: cfg.Database.LeaderURL}
		f.TwoDatabases = errors.Is(engine.CheckLeaderURL(ctx, options), engine.ErrTwoDatabases)
	}
	if url, readOnly, found := f.direct(); found {
		f.Err = f.read(ctx, url, readOnly)
	}
	return f
}

// read reads the server, the schema and the cluster, as far as each exists.
func (f *Facts) read(ctx context.Context, url string, readOnly bool) error {
	pool, err := openPool(ctx, url, readOnly, f.Config.Database.Schema, f.Pool.Shared || f.Election.Shared)
	if err != nil {
		return err
	}
	defer postgres.ClosePool(pool)
	server, err := readServer(ctx, pool)
	if err != nil {
		return err
	}
	f.Server = &server
	err = f.readTables(ctx, pool)
	holders, failed := tableLocks(ctx, pool, f.Config.Database.Schema, hasCode(err, lockNotAvailable))
	f.LockHolders = holders
	if lacksObject(failed) { // a server older than 14, which another check reports
		failed = nil
	}
	return cmp.Or(err, failed)
}

// readTables reads the schema and the cluster.
func (f *Facts) readTables(ctx context.Context, pool *pgxpool.Pool) error {
	schema, err := readSchema(ctx, pool, f.Config.Database.Schema)
	if err != nil {
		return err
	}
	f.Schema = &schema
	if schema.readable() {
		f.Writes = postgres.CheckWrites(ctx, pool, schema.Name)
	}
	cluster, err := readCluster(ctx, pool, f.Config, schema)
	if errors.Is(schema.Version, migrations.ErrPending) && lacksObject(err) {
		return nil // checkSchema reports it
	}
	if err != nil {
		return err
	}
	f.Cluster = &cluster
	return nil
}

// lacksObject reports whether a statement named a table, column or function that does not exist.
func lacksObject(err error) bool { return hasCode(err, "42P01", "42703", "42883") }

func hasCode(err error, codes ...string) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(codes, refused.Code)
}

// openPool also connects through poolers and, if readOnly is true, to replicas. It
// changes no settings of a session that others share.
func openPool(ctx context.Context, url string, readOnly bool, schema string, shared bool) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("parse the database's address: %w", err)
	}
	config.MaxConns = 2
	config.ConnConfig.ValidateConnect = postgres.RequireWritable
	if readOnly { // overrides target_session_attrs of the address
		config.ConnConfig.ValidateConnect = nil
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.ConnConfig.RuntimeParams["application_name"] = applicationName
	postgres.SetClientParams(&config.ConnConfig.Config)
	if !shared {
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, sessionSQL, schema)
			return err
		}
	}
	return pgxpool.NewWithConfig(ctx, config)
}

func readServer(ctx context.Context, pool *pgxpool.Pool) (Server, error) {
	var s Server
	err := pool.QueryRow(ctx, serverSQL).Scan(&s.VersionNum, &s.Version, &s.Encoding, &s.User,
		&s.MaxConnections, &s.Connections, &s.Autovacuum, &s.Fsync, &s.DatabaseBytes,
		&s.Replicas, &s.SynchronousWith, &s.ForeignUsers, &s.Database, &s.PublicConnect, &s.OtherLogins)
	if err != nil {
		return Server{}, fmt.Errorf("look at the server: %w", err)
	}
	return s, nil
}

func readSchema(ctx context.Context, pool *pgxpool.Pool, name string) (Schema, error) {
	s := Schema{Name: name}
	if err := pool.QueryRow(ctx, schemaSQL, name).Scan(&s.Owner, &s.Owned); err != nil {
		return Schema{}, fmt.Errorf("look at schema %s: %w", name, err)
	}
	s.Empty = s.Owner == ""
	var err error
	if s.Missing, err = MissingGrants(ctx, pool, name); err != nil {
		return Schema{}, err
	}
	if s.Empty {
		return s, nil
	}
	if s.Tables, err = compactor.NewStore(pool).Tables(ctx, name); err != nil {
		return Schema{}, err
	}
	s.Version = migrations.New(pool, slog.New(slog.DiscardHandler)).Check(ctx)
	if hasCode(s.Version, lockNotAvailable) {
		return s, s.Version
	}
	return s, nil
}

// readCluster reads what the user may read. Without the tables, or the right to read
// them, that is only the locks.
func readCluster(ctx context.Context, pool *pgxpool.Pool, cfg *config.Config, schema Schema) (Cluster, error) {
	var c Cluster
	if schema.readable() {
		if err := c.read(ctx, pool, cfg); err != nil {
			return Cluster{}, err
		}
	}
	var err error
	if _, c.OwnHash, err = cfg.ClusterSections(); err != nil {
		return Cluster{}, err
	}
	if schema.Empty && schema.Name != "public" { // its lock ids are unknown until it is migrated
		return c, nil
	}
	c.Holders, err = lockHolders(ctx, pool, cfg, c.Leaders)
	return c, err
}

func (c *Cluster) read(ctx context.Context, pool *pgxpool.Pool, cfg *config.Config) (err error) {
	if c.Nodes, err = nodestore.New(pool).List(ctx); err != nil {
		return err
	}
	if c.Leaders, err = leaderstore.New(pool).Leaders(ctx); err != nil {
		return err
	}
	if c.Database, err = leaderstore.New(pool).DatabaseID(ctx); err != nil {
		return err
	}
	if c.Hazards, err = hazards.New(pool).Read(ctx); err != nil {
		return err
	}
	if c.Passes, err = compactor.NewStore(pool).Passes(ctx, 1); err != nil {
		return err
	}
	inForce, err := cronstore.New(pool).ConfigInForce(ctx)
	if errors.Is(err, cronstore.ErrNotFound) {
		return nil
	}
	c.InForce = inForce.Hash
	if err == nil {
		c.OwnHeld, err = held(inForce, cfg)
	}
	if err == nil {
		_, c.Drifts, err = cronstore.New(pool).Drifts(ctx, configsOf(c.Nodes))
	}
	return err
}

// configsOf returns the hashes of the configurations that nodes run.
func configsOf(nodes []nodestore.Node) []string {
	hashes := map[string]bool{}
	for _, n := range nodes {
		hashes[n.ConfigHash] = true
	}
	return slices.Sorted(maps.Keys(hashes))
}

// held returns the reason why a node would not apply a file without confirmation; empty
// when it would.
func held(inForce cronstore.Config, cfg *config.Config) (string, error) {
	own, _, err := cfg.ClusterSections()
	if err != nil {
		return "", err
	}
	changes, err := config.Compare(inForce.Body, own)
	if err != nil {
		return "", err
	}
	crons := changes["crons"]
	refused := cronstore.Unattended(cronstore.Review{
		Removed: crons.Removed, Configured: len(crons.Removed) + len(crons.Changed) + crons.Unchanged,
		Cluster: cfg.Cluster.Name, InForce: inForce.Cluster,
	})
	if refused == nil {
		return "", nil
	}
	return refused.Error(), nil
}

func builtIn(role string) bool { return slices.Contains(roles.All(), roles.Role(role)) }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
