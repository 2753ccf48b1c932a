// Package wire is the protocol between the scheduler's leader and the nodes:
// small JSON payloads over PostgreSQL's NOTIFY.
//
// The leader offers ids of available jobs to a node; the node claims them with
// one conditional UPDATE. A node reports its credit (how many more jobs it can
// take) as absolute values, so that a lost message is healed by the next one
// and a new leader needs no history:
//
//	leader                                    node
//	  | -- Offer{term, seq, jobs} --------------> |   channel forge_offer_<incarnation>
//	  |                                           |   claims: UPDATE ... WHERE state = 'available'
//	  | <------- Credit{term, seen seq, free} --- |   channel forge_credit
//
// An offer without jobs asks for a report. Nothing here is authoritative: the
// job's row is. A lost offer leaves the job available, to be offered again.
package wire

import (
	"encoding/json"
	"fmt"
)

// Channel names, before the schema prefix.
const (
	// CreditChannel carries Credit from every node to the leader.
	CreditChannel = "forge_credit"
	// NodeChannel announces that a row of forge_nodes changed other than by a
	// heartbeat. Its payload is the node id.
	NodeChannel = "forge_node"
	// LeaderChannel announces a change of leadership, a wish for one, or that a
	// node has gone that could have taken over. Its payload is the role, or empty.
	LeaderChannel = "forge_leader"
	// CronChannel announces that crons were applied, paused or resumed. Its
	// payload is empty.
	CronChannel = "forge_cron"
	// FailureChannel announces that somebody is to be told of a failed run. Its
	// payload is empty.
	FailureChannel = "forge_failure"
	// RiverInsertChannel is River's own, sent when a job becomes available.
	RiverInsertChannel = "river_insert"
	// RiverControlChannel is River's own, sent to cancel a running job and to
	// pause a queue.
	RiverControlChannel = "river_control"

	offerPrefix = "forge_offer_"
)

// MaxOfferIDs bounds the ids in one Offer, so that its JSON stays under
// PostgreSQL's limit of 8,000 bytes a payload (ids of up to ten digits).
const MaxOfferIDs = 600

// MaxSchemaLength keeps every prefixed channel name within PostgreSQL's 63
// bytes for an identifier.
const MaxSchemaLength = 30

// Channel returns the channel's name in a schema, as River prefixes its own.
func Channel(schema, name string) string { return schema + "." + name }

// OfferChannel returns the channel on which one incarnation of a node listens.
func OfferChannel(schema, incarnation string) string {
	return Channel(schema, offerPrefix+incarnation)
}

// Offer is the leader's proposal that a node claims these jobs.
type Offer struct {
	// Term of the scheduler's leader. A node refuses a lower one than it has
	// seen, and the claim checks it against forge_leaders.
	Term int64 `json:"t"`
	// Seq counts the offers of one term to one node, from 1.
	Seq int64 `json:"s"`
	// Jobs are ids of available jobs by queue. Empty asks for a Credit.
	Jobs map[string][]int64 `json:"j,omitempty"`
	// Limited says that a limit of the cluster is on each of Jobs: their claim
	// makes sure that it is kept.
	Limited bool `json:"l,omitempty"`
}

// Credit is a node's report of how many more jobs it could take.
type Credit struct {
	NodeID      string `json:"n"`
	Incarnation string `json:"i"`
	// Term and Seen name the newest offer that Free accounts for.
	Term int64 `json:"t"`
	Seen int64 `json:"s"`
	// Slots is how many more jobs the node could start in all.
	Slots int `json:"f"`
	// Free is the same by queue.
	Free map[string]int `json:"q"`
}

// Marshal encodes a message as a NOTIFY payload.
func Marshal[T Offer | Credit](message T) string {
	payload, err := json.Marshal(message)
	if err != nil { // cannot happen: both are plain data
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
