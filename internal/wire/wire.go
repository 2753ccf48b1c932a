// Package wire is the protocol between the scheduler's leader and the nodes:
// small JSON payloads over PostgreSQL's NOTIFY.
//
// The leader offers ids of available jobs to a node; the node claims them with
// one conditional UPDATE. A node reports its credit (how many more jobs it can
// take) as absolute values, so that the next message replaces a lost one
// and a new leader needs no history:
//
//	leader                                    node
//	  | -- Offer{term, seq, jobs} --------------> |   channel forge_offer_<incarnation>
//	  |                                           |   claims: UPDATE ... WHERE state = 'available'
//	  | <------- Credit{term, seen seq, free} --- |   channel forge_credit
//
// An offer without jobs requests a Credit. Only the job's row is authoritative,
// not a message. After a lost offer the job is still available and is offered again.
package wire

import (
	"encoding/json"
	"fmt"
	"time"
)

// Channel names, before the schema prefix.
const (
	// CreditChannel carries Credit from every node to the leader.
	CreditChannel = "forge_credit"
	// NodeChannel announces that a row of forge_nodes changed other than by a
	// heartbeat. Its payload is the node id.
	NodeChannel = "forge_node"
	// LeaderChannel announces a change of leadership, a request for one, or that a
	// node has gone that could have taken over. Its payload is the role, or empty.
	LeaderChannel = "forge_leader"
	// CronChannel announces that crons were applied, paused or resumed. Its
	// payload is empty.
	CronChannel = "forge_cron"
	// FailureChannel announces that a notification of a failed run is due. Its
	// payload is empty.
	FailureChannel = "forge_failure"
	// RiverInsertChannel is River's own channel, notified when a job becomes
	// available. The payload is Inserted.
	RiverInsertChannel = "river_insert"
	// RiverControlChannel is River's own channel, notified to cancel a running job
	// and to pause a queue.
	RiverControlChannel = "river_control"

	offerPrefix = "forge_offer_"
)

// Inserted is the payload of RiverInsertChannel. River sends only the queue.
type Inserted struct {
	// Queue is empty if the jobs may be in any queue.
	Queue string `json:"queue"`
	// From is set if the job was due so long ago that the leader may have read past it.
	From time.Time `json:"from,omitzero"`
}

// MaxOfferIDs bounds the ids in one Offer, so that its JSON stays below
// PostgreSQL's limit of 8,000 bytes per payload (ids of up to ten digits).
const MaxOfferIDs = 600

// MaxSchemaLength keeps every prefixed channel name within PostgreSQL's 63
// bytes for an identifier.
const MaxSchemaLength = 30

// Channel returns the channel's name in a schema, with the same prefix as River's
// channels.
func Channel(schema, name string) string { return schema + "." + name }

// OfferChannel returns the channel on which one incarnation of a node listens.
func OfferChannel(schema, incarnation string) string {
	return Channel(schema, offerPrefix+incarnation)
}

// Offer offers a node these jobs to claim.
type Offer struct {
	// Term is the term of the scheduler's leader. A node rejects a term lower than
	// the highest it has seen, and the claim checks it against forge_leaders.
	Term int64 `json:"t"`
	// Seq counts the offers of one term to one node, from 1.
	Seq int64 `json:"s"`
	// Jobs holds ids of available jobs by queue. An empty Offer requests a Credit.
	Jobs map[string][]int64 `json:"j,omitempty"`
	// Limited is whether a limit of the cluster applies to each of Jobs; the claim
	// then enforces it.
	Limited bool `json:"l,omitempty"`
	// LimitVersion is the version of the limits under which the leader has counted the places of
	// these limited jobs, and which the claim checks; 0 from a leader of an earlier version.
	LimitVersion int64 `json:"v,omitempty"`
	// Rows are the transactions that wrote the rows of these limited jobs, of which the leader has
	// read the keys, in the order of Jobs. The claim leaves a job with another row.
	Rows map[string][]int64 `json:"x,omitempty"`
	// Locks are the numbers of the locks of the limits under which each of these limited jobs counts,
	// in the order of Jobs: none for a job that the claim has to count, because the leader has not
	// counted all of its limits. A node of an earlier version counts each job.
	Locks map[string][][]int64 `json:"k,omitempty"`
}

// Credit reports how many more jobs a node could take.
type Credit struct {
	NodeID      string `json:"n"`
	Incarnation string `json:"i"`
	// Term and Seen identify the newest offer that Free accounts for.
	Term int64 `json:"t"`
	Seen int64 `json:"s"`
	// Slots is how many more jobs the node could start in all queues.
	Slots int `json:"f"`
	// Free is how many more jobs the node could start, by queue.
	Free map[string]int `json:"q"`
	// Reserved is how many of Slots only jobs of a queue may use, by queue. A node of an earlier
	// version reserves none.
	Reserved map[string]int `json:"r,omitempty"`
	// ReadsCounted is whether the node reads LimitVersion, Rows and Locks of an offer.
	ReadsCounted bool `json:"c,omitempty"`
}

// Marshal encodes a message as a NOTIFY payload.
func Marshal[T Offer | Credit](message T) string {
	payload, err := json.Marshal(message)
	if err != nil { // cannot happen: both types are plain data
		panic(err)
	}
	return string(payload)
}

// Unmarshal decodes a NOTIFY payload.
func Unmarshal[T Offer | Credit](payload string) (T, error) {
	var message T
	if err := json.Unmarshal([]byte(payload), &message); err != nil {
		return message, fmt.Errorf("decode %T: %w", message, err)
	}
	return message, nil
}
