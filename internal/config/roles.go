package config

import (
	"fmt"
	"strconv"
)

// fillRoles gives the roles that are not built in a takeover delay: what their
// leaders do is not known to be fenced.
func (l *loader) fillRoles() {
	election := &l.cfg.Cluster.LeaderElection
	for name, role := range election.Roles {
		if _, builtIn := lockIDs[name]; builtIn || l.has(join("cluster.leader_election.roles", name)+".takeover_delay") {
			continue
		}
		fill(&role.TakeoverDelay, election.LeaseDuration)
		election.Roles[name] = role
	}
}

// checkTakeover warns of a delay within which a predecessor may not have stopped.
func (l *loader) checkTakeover(path, name string, role RoleOverrides) {
	lease := l.cfg.Cluster.LeaderElection.LeaseDuration
	if _, builtIn := lockIDs[name]; builtIn || !l.ok(path) || role.TakeoverDelay >= lease {
		return
	}
	l.warn(path, fmt.Sprintf("shorter than lease_duration %s: after a terminated session two may run for a moment", lease),
		strconv.Quote(lease.String())+", or work that a fence guards throughout")
}
