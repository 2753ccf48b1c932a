package doctor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/migrations"
)

func checkSchema(f Facts, r *report) {
	s := *f.Schema
	const migrate = "run forge migrate up, or start a node"
	absent, lacks := errors.AsType[*postgres.TablesError](f.Writes)
	switch {
	case lacks && s.Version == nil:
		r.fail("restore the database from a backup: forge migrate up does not create them again",
			"the migrations are recorded as applied, but schema %s lacks %s", s.Name, strings.Join(absent.Missing, ", "))
	case s.Empty:
		r.warn(migrate, "no tables yet in schema %s", s.Name)
	case s.Version != nil && !s.readable(): // checkGrants reports the reason
	case errors.Is(s.Version, migrations.ErrPending) && !s.Owned:
		r.fail("run forge migrate up as "+s.Owner, "the schema is older than this binary, and only %s may change it", s.Owner)
	case errors.Is(s.Version, migrations.ErrPending) && !f.hasLocks():
		r.warn(migrate, "the schema is older than this binary, which cannot read leaders, nodes and queues until then")
	case errors.Is(s.Version, migrations.ErrPending):
		r.warn(migrate, "the schema is older than this binary")
	case errors.Is(s.Version, migrations.ErrTooOld):
		r.fail("run forge migrate up of that earlier build, then of this one", "%v", s.Version)
	case s.Version != nil:
		r.fail("use the forge that the nodes run, or a newer one", "%v", s.Version)
	default:
		r.ok("schema %s is this binary's", s.Name)
	}
}

func checkGrants(f Facts, r *report) {
	for _, line := range GrantLines(f.Schema.Missing, f.Server.User) {
		r.fail("as the owner: "+line.Statement, "%s", line.Lacks)
	}
	for _, user := range f.Server.ForeignUsers {
		r.warn(
			fmt.Sprintf("let all nodes connect as one user, or: GRANT pg_signal_backend TO %s;", quote(f.Server.User)),
			"nodes connect as %s too, whose sessions %s may not end: a hung leader of that user cannot be evicted", user, f.Server.User)
	}
	r.orOK("user %s has what it needs", f.Server.User)
}

// checkLogins finds logins that may take an advisory lock: PostgreSQL has no privilege
// for that, so every login that may connect to the database can.
func checkLogins(f Facts, r *report) {
	const harm = "can take the lock of a role between two leaders, and keep the role without a leader"
	revoke := fmt.Sprintf("REVOKE CONNECT ON DATABASE %s FROM PUBLIC; and GRANT it to forge's own user, or set "+
		"cluster.leader_election.strategy = \"lease\"; see docs/security.md", quote(f.Server.Database))
	switch {
	case f.Config.Cluster.LeaderElection.ByLease():
		r.ok("the lease strategy uses no advisory locks")
	case len(f.Server.OtherLogins) > 0:
		r.warn(revoke, "other logins may connect to the database (%s): each of them %s",
			strings.Join(f.Server.OtherLogins, ", "), harm)
	case f.Server.PublicConnect:
		r.warn(revoke, "any login of this server may connect to the database, and %s; there is no other login now", harm)
	default:
		r.ok("only %s and superusers may connect to the database", f.Server.User)
	}
}

func checkReplication(f Facts, r *report) {
	replicas := english.Plural(f.Server.Replicas, "replica", "")
	switch {
	case f.Server.Replicas == 0:
	case f.Server.SynchronousWith == "":
		r.warn("set synchronous_standby_names, or make sure that a fail-over stops the old primary first",
			"%s %s asynchronously: a fail-over may lose the newest commits, and an old primary that lives on elects leaders of its own",
			replicas, english.PluralWord(f.Server.Replicas, "follows", "follow"))
	default:
		r.ok("%s, synchronous with %s", replicas, f.Server.SynchronousWith)
	}
}

// checkConnections checks that there are enough connections for every node's pool, its
// election session, its deputy's session, its heartbeats and its notifications.
func checkConnections(f Facts, r *report) {
	const own = 4
	limit, nodes := f.Server.MaxConnections, max(1, f.livingNodes())
	most := nodes * (f.Config.Database.PoolSize + own)
	const remedy = "raise max_connections, or lower database.pool_size"
	switch {
	case f.Server.Connections*10 >= limit*9:
		r.warn(remedy, "%d of %d connections are in use", f.Server.Connections, limit)
	case most > limit:
		r.warn(remedy, "%s of %d may want %d connections; the server has %d",
			english.Plural(nodes, "node with a pool", "nodes with pools"), f.Config.Database.PoolSize, most, limit)
	default:
		r.ok("%d of %d in use", f.Server.Connections, limit)
	}
}

func checkEncoding(f Facts, r *report) {
	if f.Server.Encoding != "UTF8" {
		r.fail("create a database with ENCODING 'UTF8' TEMPLATE template0",
			"the database is encoded in %s, which cannot hold every output and argument: nodes refuse it", f.Server.Encoding)
	}
	r.orOK("%s", f.Server.Encoding)
}

// bloat is the share of dead rows, in tables of some size, above which autovacuum falls
// behind.
const (
	bloatShare   = 0.5
	bloatMinRows = 100_000
)

func checkStorage(f Facts, r *report) {
	if !f.Server.Fsync {
		r.warn("set fsync = on", "fsync is off: a power cut may destroy the database")
	}
	if !f.Server.Autovacuum {
		r.warn("set autovacuum = on", "autovacuum is off: tables only grow")
	}
	for _, t := range f.Schema.Tables {
		if t.DeadRows > bloatMinRows && float64(t.DeadRows) > bloatShare*float64(t.Rows+t.DeadRows) {
			r.warn("look for long transactions in pg_stat_activity, and let autovacuum run",
				"%s has %s dead rows and %s live ones", t.Name, humanize.Comma(t.DeadRows), humanize.Comma(t.Rows))
		}
	}
	r.orOK("%s", f.sizes())
}

func (f Facts) sizes() string {
	sizes := []string{"database " + bytes(f.Server.DatabaseBytes)}
	for _, t := range f.Schema.Tables[:min(len(f.Schema.Tables), 2)] {
		sizes = append(sizes, t.Name+" "+bytes(t.Bytes))
	}
	for _, t := range f.Schema.Tables {
		if t.Partitions > 0 {
			sizes = append(sizes, fmt.Sprintf("%s in %s partitions", t.Name, humanize.Comma(t.Partitions)))
		}
	}
	if !f.Schema.Owned {
		sizes = append(sizes, "partitions are left as they are, and rows deleted one by one: the tables belong to "+f.Schema.Owner)
	}
	return strings.Join(sizes, ", ")
}

func bytes(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
