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
	// TZData is the release of the node's time zone database.
	TZData       string            `json:"tzdata"`
	APIURL       string            `json:"api_url"`
	State        string            `json:"state"`
	Roles        []string          `json:"roles"`
	Capabilities []string          `json:"capabilities"`
	Tags         map[string]string `json:"tags"`
	// Kinds are the job kinds that the node has a worker for.
	Kinds []string `json:"kinds"`
	// RiverKinds are the kinds whose jobs River's client runs instead of forge's executor, and
	// why, as the node knew them when it joined or read its file.
	RiverKinds map[string]string `json:"river_kinds,omitempty"`
	// Queues is the maximum number of running jobs on the node, by queue.
	Queues map[string]int `json:"queues"`
	// Reserved is the number of slots that only jobs of a queue may use, by queue.
	Reserved map[string]int `json:"reserved,omitempty"`
	// Definitions holds digests of the jobs defined in the node's file, by kind.
	// The node is only given jobs whose definition in force it has.
	Definitions map[string]string `json:"definitions,omitempty"`
	Slots       int               `json:"slots"`
	Running     int               `json:"running"`
	// ConfigHash is the hash of the cluster's sections of the node's file; empty
	// for a node without a file.
	ConfigHash string `json:"config_hash"`
	// ConfigError is why the current version of the node's file was not applied;
	// the node keeps its previous configuration.
	ConfigError string `json:"config_error,omitempty"`
	// ConfigWaiting is why the node's file is not applied until an operator
	// confirms it with forge apply --yes.
	ConfigWaiting string `json:"config_waiting,omitempty"`
	// ConfigRestart holds the keys whose changes in the node's file need a restart.
	ConfigRestart   []string  `json:"config_restart,omitempty"`
	StartedAt       time.Time `json:"started_at"`
	LastHeartbeatAt time.Time `json:"last_heartbeat_at"`
	FencedAt        time.Time `json:"fenced_at,omitzero"`
	// Reporting is whether the node reports its metrics; it is false once three
	// reports are missing. ReportedAt is the time of the last report, zero before
	// the first one. Only List and Get set both.
	Reporting  bool      `json:"reporting"`
	ReportedAt time.Time `json:"reported_at,omitzero"`
	// Observed is State as readers see it: Dead once the node was silent for its
	// dead threshold, even if this is not recorded.
	Observed string `json:"-"`
	// Now is the time of the database's clock when the row was read.
	Now time.Time `json:"-"`
}

// Present reports whether the node has neither left nor died.
func (n Node) Present() bool { return n.State == Active || n.State == Draining }

// SharedConfig returns the hash of the configuration that all active nodes run, empty if they
// run different ones or there is none. Nodes without a file do not count.
func SharedConfig(nodes []Node) string {
	shared := ""
	for _, n := range nodes {
		switch {
		case n.State != Active || n.ConfigHash == "":
		case shared != "" && n.ConfigHash != shared:
			return ""
		default:
			shared = n.ConfigHash
		}
	}
	return shared
}

// ClientID is the node's name on the jobs it claims: the last element of
// river_job.attempted_by.
func (n Node) ClientID() string { return ClientID(n.NodeID, n.Incarnation) }

// ClientID joins a node id and an incarnation.
func ClientID(nodeID, incarnation string) string { return nodeID + "-" + incarnation }

// NewIncarnation returns a random id that distinguishes this process from all
// others with the same node id.
func NewIncarnation() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, according to its documentation
	return hex.EncodeToString(id[:])
}

// sessionLockClass is the first key of the advisory lock that every node's
// election session holds for its incarnation: "FORG".
const sessionLockClass int32 = 0x464F5247

// SessionLock returns the two keys of the session-level advisory lock that shows
// that an incarnation's election session is alive: PostgreSQL releases it as soon
// as the process has ended.
func SessionLock(incarnation string) (class, object int32) {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(incarnation)) // never fails
	return sessionLockClass, int32(sum.Sum32())
}
