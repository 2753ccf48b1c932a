// Package leaderstore owns forge_leaders and forge_leader_history: the election's
// dedicated session, or its lease alone where no session lasts, the terms that it
// mints, and the fence that guards every write of a leader.
package leaderstore
