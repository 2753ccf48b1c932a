package doctor

import (
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/compactstore"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/grants"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Facts are all that the checks look at.
type Facts struct {
	Config *config.Config
	// Warnings are those of the file.
	Warnings []config.Problem

	// Pool is the way by database.url, Election that by database.leader_url.
	Pool, Election Link

	// Server is nil when no address leads to one; likewise the two below it.
	Server  *Server
	Schema  *Schema
	Cluster *Cluster
	// Writes is why the server takes no writes of a node's, if it was asked.
	Writes error
	// Err is why the server, the schema or the cluster could not be looked at.
	Err error
}

// Link is one way to the database, as it was found.
type Link struct {
	// Key of the configuration that holds the address.
	Key string
	// Err says why the server cannot be reached.
	Err error
	// Pooled says that the server process which answers is not the one that the
	// connection was opened to.
	Pooled bool
	// Shared says that two statements of one session met two server processes: the
	// pooler is in transaction mode.
	Shared bool
	// Replica says that the server only follows another.
	Replica bool
	// ReadOnly is what to do about a server that takes no writes; empty: it does.
	ReadOnly string
	// Remote is the server's address; empty for a Unix socket or this machine.
	Remote string
	TLS    bool
	// RoundTrip is the longest of a few.
	RoundTrip time.Duration
	// ClockAhead is how far this machine's clock is ahead of the database's, give
	// or take ClockError.
	ClockAhead, ClockError time.Duration
	// GivesUp is when TCP at the server gives up a client that does not answer; 0 is
	// never.
	GivesUp time.Duration
	// IdleEnded says that the server ended a session that was silent for as long
	// as it was told to bear.
	IdleEnded bool
}

// Server is what PostgreSQL says of itself.
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
	// ForeignUsers are other users of the database whose names nodes of forge
	// connect under, and whose sessions this one may not end.
	ForeignUsers []string
	// Database is its name. PublicConnect says that any login may connect to it.
	Database      string
	PublicConnect bool
	// OtherLogins are some of the other logins that may, superusers left out.
	OtherLogins []string
}

// Schema is what of forge's and River's tables is there.
type Schema struct {
	Name string
	// Version is nil, migrations.ErrPending or migrations.ErrNewerSchema.
	Version error
	// Empty says that nothing was migrated yet.
	Empty bool
	// Owner of forge's tables; Owned says whether this user may change them.
	Owner string
	Owned bool
	// Missing are the privileges that this user lacks, by object.
	Missing []grants.Grant
	Tables  []Table
}

// readable says whether this user may look into the tables that are there.
func (s Schema) readable() bool {
	return !s.Empty && !slices.ContainsFunc(s.Missing, func(g grants.Grant) bool {
		return g.Privilege == "SELECT" || g.Kind == "SCHEMA"
	})
}

// Table is a large table.
type Table struct {
	Name  string
	Bytes int64
	Live  int64
	Dead  int64
	// Partitions is 0 where there are none.
	Partitions int64
}

// Cluster is what nodes have written, and the locks that elect.
type Cluster struct {
	Nodes   []nodestore.Node
	Leaders []leaderstore.Leader
	Hazards hazards.Facts
	// Holders are the sessions that hold the roles' locks.
	Holders []leaderstore.LockHolder
	// Passes are the log compactor's newest, at most one.
	Passes []compactstore.Pass
	// OwnHash is what this file means for the cluster, InForce what was applied
	// last, if anything was.
	OwnHash, InForce string
	// OwnHeld says why a node would not apply this file unless an operator confirms it.
	OwnHeld string
}
