package doctor

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/migrations"
)

// TestChecksOfDatabase covers the server and its schema.
func TestChecksOfDatabase(t *testing.T) {
	t.Parallel()
	testChecks(t, map[string]checkCase{
		"another's tables": {func(f *Facts) {
			f.Schema.Owned, f.Schema.Owner, f.Schema.Tables = false, "dba", []compactor.Table{{Name: "forge_cron_ticks", Partitions: 9}}
		}, "storage", OK, []string{"forge_cron_ticks in 9 partitions", "rows deleted one by one: the tables belong to dba"}},
		"too old": {
			func(f *Facts) { f.Server.VersionNum, f.Server.Version = 130012, "13.12" },
			"server version", Fail,
			[]string{"13.12", "14 or newer"},
		},
		"too new": {
			func(f *Facts) { f.Server.VersionNum, f.Server.Version = 190000, "19.0" },
			"server version", Warn,
			[]string{"19.0", "newer than any"},
		},
		"silent sessions are kept": {
			func(f *Facts) { f.Election.IdleEnded = false },
			"idle_session_timeout", Fail,
			[]string{"a leader that hangs would keep its lock"},
		},
		"nothing migrated": {func(f *Facts) { f.Schema.Empty = true }, "schema", Warn, []string{"no tables", "forge migrate up"}},
		"pending":          {func(f *Facts) { f.Schema.Version = migrations.ErrPending }, "schema", Warn, []string{"older than this binary"}},
		"pending, another's": {
			func(f *Facts) { f.Schema.Version, f.Schema.Owned, f.Schema.Owner = migrations.ErrPending, false, "dba" },
			"schema", Fail,
			[]string{"as dba"},
		},
		"old schema":   {func(f *Facts) { f.Schema.Version = migrations.ErrTooOld }, "schema", Fail, []string{"too old for this binary", "earlier build"}},
		"newer schema": {func(f *Facts) { f.Schema.Version = migrations.ErrNewerSchema }, "schema", Fail, []string{"or a newer one"}},
		"missing grants": {func(f *Facts) {
			f.Schema.Missing = []Grant{
				{Privilege: "INSERT", Kind: "TABLE", Object: "public.forge_a"},
				{Privilege: "UPDATE", Kind: "TABLE", Object: "public.forge_a"},
				{Privilege: "INSERT", Kind: "TABLE", Object: "public.forge_b"},
				{Privilege: "UPDATE", Kind: "TABLE", Object: "public.forge_b"},
			}
		}, "grants", Fail, []string{
			"forge lacks INSERT, UPDATE on public.forge_a, public.forge_b",
			`GRANT INSERT, UPDATE ON TABLE public.forge_a, public.forge_b TO "forge";`,
		}},
		"nodes of another user": {
			func(f *Facts) { f.Server.ForeignUsers = []string{"other"} },
			"grants", Warn,
			[]string{"other", `GRANT pg_signal_backend TO "forge";`},
		},
		"a database that everybody may connect to": {
			func(f *Facts) { f.Server.PublicConnect = true },
			"logins", Warn,
			[]string{"any login", "keep the role without a leader", "REVOKE CONNECT ON DATABASE"},
		},
		"another login that may connect": {
			func(f *Facts) { f.Server.OtherLogins = []string{"billing", "reports"} },
			"logins", Warn,
			[]string{"billing, reports", "REVOKE CONNECT"},
		},
		"logins with the lease strategy": {
			func(f *Facts) {
				f.Server.PublicConnect, f.Config.Cluster.LeaderElection.Strategy = true, "lease"
			},
			"logins", OK, nil,
		},
		"asynchronous":        {func(f *Facts) { f.Server.Replicas = 2 }, "replication", Warn, []string{"2 replicas", "synchronous_standby_names"}},
		"synchronous":         {func(f *Facts) { f.Server.Replicas, f.Server.SynchronousWith = 2, "*" }, "replication", OK, []string{"synchronous with *"}},
		"connections used up": {func(f *Facts) { f.Server.Connections = 95 }, "connections", Warn, []string{"95 of 100", "max_connections"}},
		"connections too few": {func(f *Facts) { f.Config.Database.PoolSize = 60 }, "connections", Warn, []string{"want 128", "the server has 100"}},
		"encoding":            {func(f *Facts) { f.Server.Encoding = "SQL_ASCII" }, "encoding", Fail, []string{"SQL_ASCII", "UTF8"}},
		"no fsync":            {func(f *Facts) { f.Server.Fsync = false }, "storage", Warn, []string{"power cut"}},
		"no autovacuum":       {func(f *Facts) { f.Server.Autovacuum = false }, "storage", Warn, []string{"autovacuum = on"}},
		"a full disk": {
			func(f *Facts) {
				f.Writes = &postgres.DiskError{Err: &pgconn.PgError{Message: "No space left on device"}}
			},
			"writes", Fail,
			[]string{"No space left on device", "make room"},
		},
		"a read-only database": {func(f *Facts) { f.Writes = postgres.ErrWritesRejected }, "writes", Fail, []string{"read-only", "default_transaction_read_only"}},
		"dead rows": {
			func(f *Facts) {
				f.Schema.Tables = []compactor.Table{{Name: "river_job", Rows: 10, DeadRows: 1_000_000}}
			},
			"storage", Warn,
			[]string{"river_job has 1,000,000 dead rows"},
		},
	})
}
