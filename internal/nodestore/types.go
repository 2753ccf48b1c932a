package nodestore

import (
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
	NodeID       string            `json:"node_id"`
	Incarnation  string            `json:"incarnation"`
	Hostname     string            `json:"hostname"`
	PID          int               `json:"pid"`
	Version      string            `json:"version"`
	APIURL       string            `json:"api_url"`
	State        string            `json:"state"`
	Roles        []string          `json:"roles"`
	Capabilities []string          `json:"capabilities"`
	Tags         map[string]string `json:"tags"`
	// Kinds are the job kinds that the node has a worker for.
	Kinds []string `json:"kinds"`
	// Queues is the most jobs of each queue that the node runs at once.
	Queues          map[string]int `json:"queues"`
	Slots           int            `json:"slots"`
	Running         int            `json:"running"`
	ConfigHash      string         `json:"config_hash"`
	StartedAt       time.Time      `json:"started_at"`
	LastHeartbeatAt time.Time      `json:"last_heartbeat_at"`
	FencedAt        time.Time      `json:"fenced_at,omitzero"`
	// Now is the database's clock when the row was read.
	Now time.Time `json:"-"`
}

// ClientID is how the node signs the jobs it claims: the last element of
// river_job.attempted_by.
func (n Node) ClientID() string { return ClientID(n.NodeID, n.Incarnation) }

// ClientID joins a node id and an incarnation.
func ClientID(nodeID, incarnation string) string { return nodeID + "-" + incarnation }

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
