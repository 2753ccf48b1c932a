package doctor

import (
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// Facts are the input of the checks.
type Facts struct {
	Config *config.Config
	// Warnings are the warnings about the configuration file.
	Warnings []config.Problem

	// Pool is the link of database.url, Election that of database.leader_url.
	Pool, Election Link
	// TwoDatabases is true if they lead to two databases.
	TwoDatabases bool

	// Server is nil when no address leads to a server; so are the two fields below it.
	Server  *Server
	Schema  *Schema
	Cluster *Cluster
	// Leases are the roles' Lease objects, if Kubernetes elects. Gather does not read them.
	Leases []roles.LeaseObject
	// Writes is the error of a node's write to the server, if one was tried.
	Writes error
	// LockHolders are the sessions that keep others from forge's tables.
	LockHolders []TableLock
	// Err is the reason why the server, the schema or the cluster could not be read.
	Err error
}

// connected reports whether an address leads to a server.
func (f Facts) connected() bool { return len(f.reached()) > 0 }

func (f Facts) hasClock() bool { return f.Election.Err == nil }

func (f Facts) hasServer() bool { return f.Server != nil }

func (f Facts) hasSchema() bool { return f.Server != nil && f.Schema != nil }

func (f Facts) hasLocks() bool { return f.Cluster != nil }

// hasTables reports whether the cluster's tables were read.
func (f Facts) hasTables() bool { return f.Cluster != nil && f.Schema != nil && f.Schema.readable() }

func (f Facts) hasLeases() bool { return len(f.Leases) > 0 && f.hasTables() }

// Link describes one connection to the database, as found.
type Link struct {
	// Key is the configuration key of the address.
	Key string
	// Err says why the server cannot be reached, Remedy what to do about it; Remedy may be empty.
	Err    error
	Remedy string
	// Pooled is true when the answering server process is not the one that the connection
	// was opened to.
	Pooled bool
	// Shared is true when two statements of one session reached two server processes: the
	// pooler is in transaction mode.
	Shared bool
	// Replay is whether the server is a replica, and how far it has replayed.
	Replay postgres.Replay
	// ReadOnly is the remedy for a server that accepts no writes; empty when it accepts
	// them.
	ReadOnly string
	// Remote is the server's address; empty for a Unix socket or this machine.
	Remote string
	TLS    bool
	// RoundTrip is the longest of a few round trips.
	RoundTrip time.Duration
	// ClockAhead is how far this machine's clock is ahead of the database's, with an
	// error of at most ClockError.
	ClockAhead, ClockError time.Duration
	// GivesUp is the time after which TCP at the server gives up a client that does not
	// answer; 0 means never.
	GivesUp time.Duration
	// IdleEnded is true when the server ended a session that was idle for longer than its
	// idle_session_timeout.
	IdleEnded bool
}

// Server is the server's own data about itself.
type Server struct {
	VersionNum      int
	Version         string
	Encoding        string
	User            string
	MaxConnections  int
	Connections     int
	Autovacuum      bool
	Fsync           bool
	DatabaseBytes   int64
	Replicas        int
	SynchronousWith string
	// ForeignUsers are other users of the database that nodes of forge connect as, and
	// whose sessions this user may not end.
	ForeignUsers []string
	// Database is its name. PublicConnect is true when any login may connect to it.
	Database      string
	PublicConnect bool
	// OtherLogins are some of the other logins that may connect, superusers left out.
	OtherLogins []string
}

// Schema describes which of forge's and River's tables exist.
type Schema struct {
	Name string
	// Version is nil, migrations.ErrPending or migrations.ErrNewerSchema.
	Version error
	// Empty is true when no migration was applied yet.
	Empty bool
	// Owner is the owner of forge's tables; Owned is true when this user may change them.
	Owner string
	Owned bool
	// Missing are the privileges that this user lacks, by object.
	Missing []Grant
	Tables  []compactor.Table
}

// readable reports whether this user may read the existing tables.
func (s Schema) readable() bool {
	return !s.Empty && !slices.ContainsFunc(s.Missing, func(g Grant) bool {
		return g.Privilege == "SELECT" || g.Kind == "SCHEMA"
	})
}

// Cluster is the data that nodes have written, and the locks of the elections.
type Cluster struct {
	Nodes   []nodestore.Node
	Leaders []leaderstore.Leader
	Hazards hazards.Facts
	// Holders are the sessions that hold the roles' locks.
	Holders []leaderstore.LockHolder
	// Passes are the log compactor's newest passes, at most one.
	Passes []compactor.Pass
	// OwnHash is the hash of this file's cluster sections, InForce that of the
	// configuration applied last, empty if none was.
	OwnHash, InForce string
	// Database is the DatabaseID; may be empty.
	Database string
	// Drifts are the differences of the nodes' other configurations from the one in force,
	// by hash. Configurations that were never in force are left out.
	Drifts map[string]config.Diff
	// OwnHeld is the reason why a node would not apply this file unless an operator
	// confirms it.
	OwnHeld string
}
