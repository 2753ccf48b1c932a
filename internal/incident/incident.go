// Package incident reports what happened when a role changed hands or had no leader: who led
// before and why that ended, how long nobody led, which ticks were delayed, which jobs were
// rescued, and whether anything was lost. Commands, the API and pages share it.
//
// The report is derived from the history of leaders, the events, the ledger and the running
// jobs. Nodes do not store their own log lines in the database, so the events are the log of
// those seconds.
package incident

import (
	"errors"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
)

// ErrNotFound means that the history does not have the term.
var ErrNotFound = errors.New("no such term")

// Kinds of incidents.
const (
	// FirstTerm is the first term of a role, or the oldest one in the history.
	FirstTerm = "first_term"
	// HandOver is a planned change of leader: the old leader gave the role up in order.
	HandOver = "hand_over"
	// Failover is a change of leader because the old leader was lost.
	Failover = "failover"
	// NoLeader means that the role has no leader now.
	NoLeader = "no_leader"
)

// Incident is the report on the beginning of a term, and on the time without a leader before it.
type Incident struct {
	Role string `json:"role"`
	// Term is the term that began. While the role has no leader, it is the next one.
	Term int64  `json:"term"`
	Kind string `json:"kind"`
	// Summary is the report in a few sentences.
	Summary string `json:"summary"`
	// Old is the leader before; nil for a first term.
	Old *OldLeader `json:"old_leader,omitempty"`
	// DetectedAt is when the end of the old term was noticed, ElectionAt when the new leader
	// began its election. Both are zero if the events of that time are not kept.
	DetectedAt time.Time `json:"detected_at,omitzero"`
	ElectionAt time.Time `json:"election_at,omitzero"`
	// ElectedAt, NodeID and Incarnation are those of the new leader.
	ElectedAt   time.Time `json:"elected_at,omitzero"`
	NodeID      string    `json:"node_id,omitempty"`
	Incarnation string    `json:"incarnation,omitempty"`
	// GapMS is the time without a leader: until now, if there is none.
	GapMS *float64 `json:"gap_ms,omitempty"`
	// EndedAt and EndReason are those of the new term.
	EndedAt   time.Time `json:"ended_at,omitzero"`
	EndReason string    `json:"end_reason,omitempty"`
	// FirstTick is the first tick that the term fired. Only the scheduler's terms have it.
	FirstTick *cronstore.Tick `json:"first_tick,omitempty"`
	// Ticks are the delayed ticks of the scheduler; nil while the role has no leader, which
	// records them.
	Ticks *cronstore.GapTicks `json:"ticks,omitempty"`
	Jobs  Jobs                `json:"jobs"`
	Lost  Lost                `json:"lost"`
	// Events are the events of those seconds, oldest first. EventsKept is false if retention
	// has removed them.
	Events     []eventstore.Event `json:"events"`
	EventsKept bool               `json:"events_kept"`
	// NextTerm is the term after this one; 0 if there is none.
	NextTerm int64 `json:"next_term,omitempty"`
	// Now is the database's clock when the report was made.
	Now time.Time `json:"now"`
}

// OldLeader is the leader of the term before.
type OldLeader struct {
	Term        int64     `json:"term"`
	NodeID      string    `json:"node_id"`
	Incarnation string    `json:"incarnation"`
	AcquiredAt  time.Time `json:"acquired_at"`
	// EndedAt is the last instant at which it is known to have led.
	EndedAt   time.Time `json:"ended_at,omitzero"`
	EndReason string    `json:"end_reason,omitempty"`
	Drill     bool      `json:"drill,omitempty"`
	// AskedBy is who requested the hand-over, AskedFor the node that was to lead next.
	AskedBy  string    `json:"asked_by,omitempty"`
	AskedFor string    `json:"asked_for,omitempty"`
	AskedAt  time.Time `json:"asked_at,omitzero"`
	// Process is what has become of its process: active, draining, left, dead, replaced (another
	// process has its node id) or unknown (it is no node).
	Process string `json:"process"`
	// GoneAt is when its node was recorded as dead or left.
	GoneAt time.Time `json:"gone_at,omitzero"`
}

// Jobs are the jobs that ran on the old leader's node when its process was lost.
type Jobs struct {
	// Rescued is how many jobs the scheduler's leader released. Available, Cancelled and
	// Discarded add up to it.
	Rescued   int `json:"rescued"`
	Available int `json:"available"`
	Cancelled int `json:"cancelled"`
	Discarded int `json:"discarded"`
	// IDs are the ids of some of them.
	IDs []int64 `json:"ids"`
	// RescuedAt is when the last of them was released.
	RescuedAt time.Time `json:"rescued_at,omitzero"`
	// Orphaned is how many jobs of the lost process have not been released yet.
	Orphaned int `json:"orphaned"`
}

// Lost is what the change has cost for good, as far as it can be computed.
type Lost struct {
	// Nothing reports that everything was checked and nothing was lost.
	Nothing bool `json:"nothing"`
	// Unchecked is why something could not be checked; empty if everything was.
	Unchecked string `json:"unchecked,omitempty"`
	// Ticks are due ticks that the ledger does not have. Only the scheduler's terms have it.
	Ticks *cronstore.Unrecorded `json:"ticks,omitempty"`
}

// planned reports whether the old leader gave the role up in order.
func planned(reason string) bool {
	return reason == "resigned" || reason == "stepped_down" || reason == "transferred"
}

// Unplanned reports whether a term ended for this reason because its leader was lost.
func Unplanned(reason string) bool { return reason != "" && reason != "unknown" && !planned(reason) }

// Settled reports whether the new term began longer ago than some time, so that the report
// grows no more.
func (i *Incident) Settled(after time.Duration) bool {
	return !i.ElectedAt.IsZero() && i.Now.Sub(i.ElectedAt) > after
}

// Gap returns the time without a leader.
func (i *Incident) Gap() time.Duration {
	if i.GapMS == nil {
		return 0
	}
	return time.Duration(*i.GapMS * float64(time.Millisecond))
}
