package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// applicationPrefix begins the name of every connection of a node; the incarnation and
// the node's id follow.
const applicationPrefix = "forge:"

// checkLocks checks that only nodes of this cluster hold the locks of roles.
func checkLocks(f Facts, r *report) {
	for _, holder := range f.Cluster.Holders {
		ofNode := strings.HasPrefix(holder.Application, applicationPrefix)
		unknown := ofNode && !f.Schema.Empty && !f.Schema.readable() // may be a node of this cluster: the tables cannot be read
		if unknown || f.ours(holder.Application) {
			continue
		}
		r.fail(
			f.otherLock(holder.Role)+", or end that program; see docs/security.md on who may connect",
			"the lock of %s (%d) is held by %s: nobody can lead", holder.Role, holder.LockID, holder)
	}
	r.orOK("no other application holds the lock of a role")
}

// otherLock returns how to give a role another lock.
func (f Facts) otherLock(role string) string {
	if id := f.Config.Cluster.LeaderElection.Roles[role].LockID; id != 0 {
		return "give the role another lock_id on every node"
	}
	return fmt.Sprintf("set cluster.lock_namespace to another number on every node (it is %d)", f.Config.Cluster.LockNamespace)
}

// ours reports whether a connection belongs to a node of this cluster, or to a leader
// that is no node (forge run).
func (f Facts) ours(application string) bool {
	rest, isForge := strings.CutPrefix(application, applicationPrefix)
	incarnation, _, _ := strings.Cut(rest, ":")
	return isForge && (slices.ContainsFunc(f.Cluster.Nodes, func(n nodestore.Node) bool { return n.Incarnation == incarnation }) ||
		slices.ContainsFunc(f.Cluster.Leaders, func(l leaderstore.Leader) bool { return l.Incarnation == incarnation }))
}

// checkLeaders finds roles without a leader that have a candidate, and roles that no
// other node could take over.
func checkLeaders(f Facts, r *report) {
	switch {
	case f.livingNodes() > 0:
	case f.neverLed():
		r.warn("start a node: forge serve", "no node has joined yet, so nobody leads")
		return
	default:
		r.fail("start a node: forge serve", "no node is running, so nobody leads")
		return
	}
	for _, role := range f.missingRoles() {
		r.fail("run forge doctor again: a node with the role in node.roles creates the row; otherwise read the nodes' logs",
			"nobody leads %s: forge_leaders has no row of it", role)
	}
	var led []string // shown below the others
	for _, leader := range f.Cluster.Leaders {
		stand := f.standing(leader.Role)
		switch {
		case leader.Leads():
			led = append(led, fmt.Sprintf("%s leads %s, term %d", leader.NodeID, leader.Role, leader.Term))
			if len(stand) < 2 && f.known(leader.Role) {
				r.warn("run a second node with this role in node.roles",
					"%s leads %s, and no other node could take over", leader.NodeID, leader.Role)
			}
		case len(stand) == 0 && !f.known(leader.Role):
			led = append(led, fmt.Sprintf("nobody leads %s, and no node has it in node.roles", leader.Role))
		case len(stand) == 0:
			r.fail("put "+leader.Role+" into node.roles of a node",
				"nobody leads %s: no running node has it in node.roles", leader.Role)
		default:
			r.fail("read the logs of "+strings.Join(stand, ", ")+"; see also the lines above",
				"nobody leads %s", leader.Role)
		}
	}
	for _, text := range led {
		r.ok("%s", text)
	}
}

// neverLed reports whether no node of this cluster was ever started.
func (f Facts) neverLed() bool {
	return len(f.Cluster.Nodes) == 0 && !slices.ContainsFunc(f.Cluster.Leaders, func(l leaderstore.Leader) bool { return l.Term > 0 })
}

// missingRoles returns the roles that should have a leader and have no row.
func (f Facts) missingRoles() []string {
	missing := map[string]bool{}
	for _, role := range roles.All() {
		missing[string(role)] = true
	}
	for _, node := range f.active() {
		for _, role := range node.Roles {
			missing[role] = true
		}
	}
	delete(missing, config.RoleWorker)
	for _, leader := range f.Cluster.Leaders {
		delete(missing, leader.Role)
	}
	return slices.Sorted(maps.Keys(missing))
}

// active returns the active nodes that have sent a heartbeat within the dead threshold.
func (f Facts) active() []nodestore.Node {
	return slices.DeleteFunc(slices.Clone(f.Cluster.Nodes), func(n nodestore.Node) bool {
		return n.State != nodestore.Active || !f.heard(n)
	})
}

// known reports whether nodes are the candidates for a role. forge run, which is no node,
// may run other roles.
func (f Facts) known(role string) bool { return builtIn(role) || len(f.standing(role)) > 0 }

func (f Facts) standing(role string) []string {
	var ids []string
	for _, node := range f.active() {
		if slices.Contains(node.Roles, role) {
			ids = append(ids, node.NodeID)
		}
	}
	return ids
}

// heard reports whether a node has sent a heartbeat within the dead threshold.
func (f Facts) heard(node nodestore.Node) bool {
	return node.Now.Sub(node.LastHeartbeatAt) < f.Config.Cluster.DeadThreshold.Std()
}

func (f Facts) livingNodes() int {
	if f.Cluster == nil {
		return 0
	}
	living := 0
	for _, node := range f.Cluster.Nodes {
		if node.Present() && f.heard(node) {
			living++
		}
	}
	return living
}

// checkLeases finds Lease objects that cannot be read, and those that keep a role from being led.
func checkLeases(f Facts, r *report) {
	for _, lease := range f.Leases {
		led := slices.ContainsFunc(f.Cluster.Leaders, func(l leaderstore.Leader) bool {
			return l.Role == lease.Role && l.Leads() && l.NodeID == lease.Holder
		})
		switch {
		case lease.Err != nil:
			r.fail("see docs/leadership.md#kubernetes for the Role and the RoleBinding; new leaders are elected only with an answer of the API server", "%v", lease.Err)
			return // the others are alike
		case lease.Holder != "" && lease.Database != "" && f.Cluster.Database != "" && lease.Database != f.Cluster.Database:
			r.fail("give each cluster of a namespace its own cluster.name; if this cluster was moved to another database, start its nodes",
				"the Lease %s is held by %s of a cluster with another database", lease.Name, lease.Holder)
		case lease.Holder != "" && !led:
			r.warn("wait for a lease and run forge doctor again; if a stranger holds it, such as another cluster in this namespace, give this cluster another cluster.name or release the Lease",
				"the Lease %s is held by %s, which does not lead %s", lease.Name, lease.Holder, lease.Role)
		}
	}
	r.orOK("the Leases of Kubernetes name the leaders")
}

func checkNodes(f Facts, r *report) {
	for _, node := range f.Cluster.Nodes {
		silent := node.Now.Sub(node.LastHeartbeatAt).Round(time.Second)
		switch {
		case node.State == nodestore.Dead:
			r.warn("start it again; its row goes after a day if it is gone for good",
				"%s on host %s is dead, last heartbeat %s ago", node.NodeID, node.Hostname, silent)
		case node.State != nodestore.Left && !f.heard(node):
			r.warn("check that process; the scheduler's leader gives it up",
				"%s on host %s is silent for %s", node.NodeID, node.Hostname, silent)
		}
	}
	r.orOK("%d running", f.livingNodes())
}

// checkExecutor reports the kinds whose jobs River's client runs instead of forge's executor, and
// why.
func checkExecutor(f Facts, r *report) {
	reasons := map[string][]string{}
	for _, node := range f.active() {
		for kind, reason := range node.RiverKinds {
			if text := kind + " (" + reason + ")"; !slices.Contains(reasons[text], node.NodeID) {
				reasons[text] = append(reasons[text], node.NodeID)
			}
		}
	}
	for _, text := range slices.Sorted(maps.Keys(reasons)) {
		r.ok("River's client runs the jobs of %s on %s", text, strings.Join(reasons[text], ", "))
	}
}

// checkDrift compares the nodes' configurations with the one in force and with this file.
func checkDrift(f Facts, r *report) {
	if f.Cluster.InForce == "" {
		return
	}
	reverted := f.reverted()
	if reverted != "" {
		checkReverted(f, reverted, r)
	}
	versions, zones := map[string]bool{}, map[string]bool{}
	for _, node := range f.active() {
		versions[node.Version], zones[node.TZData] = true, true
		if node.ConfigWaiting != "" {
			r.warn("forge plan with that file shows what it would change; forge apply --yes puts it in force",
				"the file of %s waits for forge apply --yes: %s", node.NodeID, node.ConfigWaiting)
		}
		if node.ConfigHash != "" && node.ConfigHash != f.Cluster.InForce && node.ConfigHash != reverted {
			r.warn("give it the file that is in force, or forge apply its own", "%s runs configuration %s%s; in force is %s",
				node.NodeID, short(node.ConfigHash), differs(f.Cluster.Drifts[node.ConfigHash]), short(f.Cluster.InForce))
		}
	}
	switch {
	case f.Cluster.OwnHash == f.Cluster.InForce:
	case reverted != "" && f.Cluster.OwnHash == reverted && f.Cluster.OwnHeld == "":
	case !f.Config.HasClusterSections():
		r.ok("this file has no crons, jobs, queues or alerts; in force is configuration %s", short(f.Cluster.InForce))
	case f.Cluster.OwnHeld != "":
		r.warn("forge plan shows the difference, forge apply --yes puts this file in force",
			"this file waits for forge apply --yes: %s", f.Cluster.OwnHeld)
	default:
		r.warn("forge plan shows the difference, forge apply puts this file in force",
			"this file means configuration %s; in force is %s", short(f.Cluster.OwnHash), short(f.Cluster.InForce))
	}
	if len(versions) > 1 {
		r.warn("finish the upgrade", "the nodes run %d versions of forge", len(versions))
	}
	if len(zones) > 1 {
		r.warn("run one version of forge: it contains the time zones",
			"the nodes go by different releases of the time zone database (%s), and may come to different ticks",
			strings.Join(slices.Sorted(maps.Keys(zones)), ", "))
	}
	r.orOK("every node runs configuration %s", short(f.Cluster.InForce))
}

// differs returns the known difference of a configuration as part of a sentence.
func differs(drift config.Diff) string {
	if drift.Empty() {
		return ""
	}
	return fmt.Sprintf(", which differs by %s", drift)
}

// checkReverted reports that the active nodes agree on a file that is not in force.
func checkReverted(f Facts, reverted string, r *report) {
	nodes, remedy := "the active node runs", "forge apply with that file puts it in force again"
	if n := len(f.active()); n > 1 {
		nodes = fmt.Sprintf("all %d active nodes run", n)
	}
	if f.Cluster.OwnHash == reverted {
		remedy = "forge plan shows the difference, forge apply puts this file in force again"
	}
	r.warn(remedy+"; if it is the wrong file, give every node the one that is in force",
		"%s the earlier configuration %s, which differs by %s; in force is %s",
		nodes, short(reverted), f.Cluster.Drifts[reverted], short(f.Cluster.InForce))
}

// reverted returns the hash of the earlier configuration that all active nodes run although
// another one is in force, empty if there is none.
func (f Facts) reverted() string {
	shared := nodestore.SharedConfig(f.active())
	if _, known := f.Cluster.Drifts[shared]; !known {
		return ""
	}
	return shared
}

func short(hash string) string {
	if hash == "" {
		return "(none)"
	}
	return hash[:min(len(hash), 12)]
}
