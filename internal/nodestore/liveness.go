package nodestore

import "time"

// missedBeats is how many heartbeat intervals may pass before a silent node
// whose session lock is gone counts as dead. One is always under way; the half
// is for the road.
const missedBeats = 1.5

// Policy says when a silent node is dead. Zero values mean the defaults: one
// second and five seconds.
type Policy struct {
	// HeartbeatInterval is how often nodes report.
	HeartbeatInterval time.Duration
	// DeadThreshold is the silence after which a node is dead whatever else
	// speaks for it.
	DeadThreshold time.Duration
	// NoSessionLocks is for clusters that elect by lease, whose nodes hold no
	// session lock: its absence then says nothing.
	NoSessionLocks bool
}

// WithDefaults returns the policy with its zero values filled in.
func (p Policy) WithDefaults() Policy {
	if p.HeartbeatInterval <= 0 {
		p.HeartbeatInterval = time.Second
	}
	if p.DeadThreshold <= 0 {
		p.DeadThreshold = 5 * time.Second
	}
	return p
}

// Liveness is a node with what speaks for its being alive.
type Liveness struct {
	Node
	// HeartbeatAge is the time since the last heartbeat.
	HeartbeatAge time.Duration
	// SessionLock says whether the node's election session holds its lock.
	SessionLock bool
}

// Dead judges a node. Silence alone condemns after the dead threshold: the
// process hangs or is cut off. A missing session lock condemns sooner, for a
// crash frees it at once, but not by itself, for a session that reconnects
// lacks it for a moment and its process still heartbeats.
func (l Liveness) Dead(policy Policy) bool {
	return l.HeartbeatAge >= l.deadAfter(policy.WithDefaults())
}

// UntilDead returns how soon the node would be dead if it stayed silent; zero
// when it is dead already.
func (l Liveness) UntilDead(policy Policy) time.Duration {
	return max(0, l.deadAfter(policy.WithDefaults())-l.HeartbeatAge)
}

// UntilSuspect is UntilDead for a node whose session lock may vanish at any
// time: the first instant at which another look could find it dead.
func (l Liveness) UntilSuspect(policy Policy) time.Duration {
	l.SessionLock = false
	return l.UntilDead(policy)
}

func (l Liveness) deadAfter(policy Policy) time.Duration {
	if l.SessionLock || policy.NoSessionLocks {
		return policy.DeadThreshold
	}
	return min(policy.DeadThreshold, time.Duration(missedBeats*float64(policy.HeartbeatInterval)))
}

// mayReplace says whether a process of the given incarnation may take the row
// of holder.
func mayReplace(holder Liveness, incarnation string, policy Policy) error {
	if holder.Incarnation == incarnation {
		if !holder.FencedAt.IsZero() {
			return ErrFenced
		}
		return nil
	}
	gone := holder.State == Left || holder.State == Dead
	if !holder.SessionLock && (gone || holder.Dead(policy)) {
		return nil
	}
	return &TwinError{
		NodeID: holder.NodeID, Incarnation: holder.Incarnation, Hostname: holder.Hostname, PID: holder.PID,
		LastHeartbeat: holder.LastHeartbeatAt, SessionLock: holder.SessionLock,
	}
}
