package nodestore

import (
	"crypto/rand"
	"encoding/hex"
	"hash/fnv"
	"time"
)

// States of a node.
const (
	Active   = "active"
	Draining = "draining"
	Left     = "left"
	Dead     = "dead"
)

// Node is a row of forge_nodes.
type Node struct {
	NodeID      string `json:"node_id"`
	Incarnation string `json:"incarnation"`
	Hostname    string `json:"hostname"`
	PID         int    `json:"pid"`
	Version     string `json:"version"`
	// TZData is the release of the time zones that the node goes by.
	TZData       string            `json:"tzdata"`
	APIURL       string            `json:"api_url"`
	State        string            `json:"state"`
	Roles        []string          `json:"roles"`
	Capabilities []string          `json:"capabilities"`
	Tags         map[string]string `json:"tags"`
	// Kinds are the job kinds that the node has a worker for.
	Kinds []string `json:"kinds"`
	// Queues is the most jobs of each queue that the node runs at once.
	Queues map[string]int `json:"queues"`
	// Definitions are digests of the jobs that the node's file defines, by kind:
	// the node is only given jobs whose definition in force it holds.
	Definitions map[string]string `json:"definitions,omitempty"`
	Slots       int               `json:"slots"`
	Running     int               `json:"running"`
	// ConfigHash is the hash of the cluster's sections of the node's file; empty for a
	// file that has none.
	ConfigHash string `json:"config_hash"`
	// ConfigError says why the node's file, as it stands now, was not taken over;
	// the node goes on with what it had.
	ConfigError string `json:"config_error,omitempty"`
	// ConfigWaiting says why the node's file is not applied until an operator confirms
	// it with forge apply --yes.
	ConfigWaiting string `json:"config_waiting,omitempty"`
	// ConfigRestart are the keys that the node's file changes and that only a
	// restart takes over.
	ConfigRestart   []string  `json:"config_restart,omitempty"`
	StartedAt       time.Time `json:"started_at"`
	LastHeartbeatAt time.Time `json:"last_heartbeat_at"`
	FencedAt        time.Time `json:"fenced_at,omitzero"`
	// Reporting says that the node hands its metrics to the metrics aggregator;
	// three reports are missing where it does not. ReportedAt is when it last did,
	// zero before the first time. List and Get alone know of both.
	Reporting  bool      `json:"reporting"`
	ReportedAt time.Time `json:"reported_at,omitzero"`
	// Observed is State as readers see it: Dead once the node was silent for its
	// dead threshold, even if nobody has recorded that.
	Observed string `json:"-"`
	// Now is the database's clock when the row was read.
	Now time.Time `json:"-"`
}

// Present says that the node is here: it has neither left nor died.
func (n Node) Present() bool { return n.State == Active || n.State == Draining }

// ClientID is how the node signs the jobs it claims: the last element of
// river_job.attempted_by.
func (n Node) ClientID() string { return ClientID(n.NodeID, n.Incarnation) }

// ClientID joins a node id and an incarnation.
func ClientID(nodeID, incarnation string) string { return nodeID + "-" + incarnation }

// NewIncarnation names this process among all that ever had its node id.
func NewIncarnation() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, says its documentation
	return hex.EncodeToString(id[:])
}

// sessionLockClass is the first key of the advisory lock that every node's
// election session holds for its incarnation: "FORG".
const sessionLockClass int32 = 0x464F5247

// SessionLock returns the two keys of the session-level advisory lock that
// proves that an incarnation's election session is alive: PostgreSQL frees it
// the moment that the process is gone.
func SessionLock(incarnation string) (class, object int32) {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(incarnation)) // never fails
	return sessionLockClass, int32(sum.Sum32())
}
