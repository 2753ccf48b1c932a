package nodestore

import "time"

// missedBeats is the number of heartbeat intervals after which a silent node whose
// session lock is free counts as dead. One heartbeat is always in progress; the
// half allows for its latency.
const missedBeats = 1.5

// Policy determines when a silent node is dead. Zero values mean the defaults: one
// second and five seconds.
type Policy struct {
	// HeartbeatInterval is the interval of heartbeats.
	HeartbeatInterval time.Duration
	// DeadThreshold is the silence after which a node is dead even if its session
	// lock is held.
	DeadThreshold time.Duration
	// NoSessionLocks is set in clusters that elect by lease: their nodes hold no
	// session lock, so a missing lock means nothing.
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

// Liveness is a node with the signals that show whether it is alive.
type Liveness struct {
	Node
	// HeartbeatAge is the time since the last heartbeat.
	HeartbeatAge time.Duration
	// SessionLock is whether the node's election session holds its lock.
	SessionLock bool
}

// Dead reports whether a node is dead. Silence beyond the dead threshold is enough:
// the process hangs or is cut off. If the session lock is missing, a shorter
// silence is enough, because a crash releases the lock at once. A missing lock
// alone is not: a session that reconnects lacks it for a moment while its process
// still sends heartbeats.
func (l Liveness) Dead(policy Policy) bool {
	return l.HeartbeatAge >= l.deadAfter(policy.WithDefaults())
}

// UntilDead returns the time until the node is dead if it stays silent; zero if it
// is dead.
func (l Liveness) UntilDead(policy Policy) time.Duration {
	return max(0, l.deadAfter(policy.WithDefaults())-l.HeartbeatAge)
}

func (l Liveness) deadAfter(policy Policy) time.Duration {
	if l.SessionLock || policy.NoSessionLocks {
		return policy.DeadThreshold
	}
	return min(policy.DeadThreshold, time.Duration(missedBeats*float64(policy.HeartbeatInterval)))
}

// checkReplace returns an error unless a process of the given incarnation may take
// the row of holder.
func checkReplace(holder Liveness, incarnation string, policy Policy) error {
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
	return &DuplicateIDError{
		NodeID: holder.NodeID, Incarnation: holder.Incarnation, Hostname: holder.Hostname, PID: holder.PID,
		LastHeartbeat: holder.LastHeartbeatAt, SessionLock: holder.SessionLock,
	}
}
