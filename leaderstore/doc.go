// Package leaderstore owns forge_leaders and forge_leader_history. It implements the
// election session, with advisory locks or with leases alone, the terms, and the fence that
// guards every write of a leader.
package leaderstore
