package leaderstore

import (
	"encoding/json"
	"time"
)

// Leader is a row of forge_leaders. Its times are by the database's clock. NodeID is empty
// and the times are zero while the role is vacant.
type Leader struct {
	Role        string          `json:"role"`
	NodeID      string          `json:"node_id,omitempty"`
	Incarnation string          `json:"incarnation,omitempty"`
	Term        int64           `json:"term"`
	AcquiredAt  time.Time       `json:"acquired_at,omitzero"`
	RenewedAt   time.Time       `json:"renewed_at,omitzero"`
	LeaseUntil  time.Time       `json:"lease_until,omitzero"`
	BackendPID  int             `json:"backend_pid,omitempty"`
	APIURL      string          `json:"api_url,omitempty"`
	Timeline    string          `json:"timeline,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	// LockHolder is the session that holds the role's lock while the row names no leader.
	// Only some reads set it.
	LockHolder *LockHolder `json:"lock_holder,omitempty"`
	// Now is the database's clock when the row was read.
	Now time.Time `json:"-"`
}

// Leads reports whether the row names a leader whose lease has not expired.
func (l Leader) Leads() bool { return l.NodeID != "" && l.LeaseUntil.After(l.Now) }

// Tenure is a row of forge_leader_history: one term of a role. EndedAt is zero and
// EndReason empty during the term. HasGap is false for the first term of a role.
type Tenure struct {
	Role        string        `json:"role"`
	Term        int64         `json:"term"`
	NodeID      string        `json:"node_id"`
	Incarnation string        `json:"incarnation"`
	AcquiredAt  time.Time     `json:"acquired_at"`
	EndedAt     time.Time     `json:"ended_at,omitzero"`
	EndReason   string        `json:"end_reason,omitempty"`
	Gap         time.Duration `json:"-"`
	HasGap      bool          `json:"-"`
	Timeline    string        `json:"timeline,omitempty"`
	// Drill is set if the term was handed over to measure the duration of a hand-over.
	Drill bool `json:"drill,omitempty"`
}

// MarshalJSON adds the gap in milliseconds.
func (t Tenure) MarshalJSON() ([]byte, error) {
	type plain Tenure
	document := struct {
		plain
		GapMS *float64 `json:"gap_ms,omitempty"`
	}{plain: plain(t)}
	if t.HasGap {
		ms := float64(t.Gap.Microseconds()) / 1000
		document.GapMS = &ms
	}
	return json.Marshal(document)
}

// SessionEnd is the end of a session as a waiting deputy observed it. It is zero if no
// deputy observed the end.
type SessionEnd struct {
	Incarnation string
	At          time.Time
}
