package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// maxNodeID is the most bytes of a node's id: it becomes part of PostgreSQL's
// application_name and of River's attempted_by.
const maxNodeID = 63

var (
	schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,29}$`)
	roleName   = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	printable  = regexp.MustCompile(`^[!-~]+$`)
	objectName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,99}$`)
	// settingName is what PostgreSQL can have as the name of a setting.
	settingName = regexp.MustCompile(`^[\pL_][\pL\pN_$.]*$`)
)

// lockIDs are the advisory locks of the built-in roles, before the namespace.
var lockIDs = map[string]int64{
	RoleScheduler:         0x464F524745_0001,
	RoleMetricsAggregator: 0x464F524745_0002,
	RoleLogCompactor:      0x464F524745_0003,
}

// ErrNoDatabase says that nothing names a database.
var ErrNoDatabase = errors.New(`no database: set database.url in forge.toml or FORGE_DATABASE_URL, or run "forge dev", which brings its own PostgreSQL`)

// RequireDatabase returns ErrNoDatabase when no database is configured, which is
// no mistake in a file: forge dev brings its own.
func (c *Config) RequireDatabase() error {
	if c.Database.URL == "" {
		return ErrNoDatabase
	}
	return nil
}

// check looks at what single values do not tell.
func (l *loader) check() {
	l.checkDatabase()
	l.checkNode()
	l.checkAllowedCommands()
	l.checkCluster()
	l.checkElection()
	l.checkHTTP()
	l.checkAllowed()
	l.checkLogin()
	l.checkQueues()
	l.checkJobs()
	l.checkNotify()
	l.checkCrons()
	l.checkAlerts()
	l.checkDeadman()
}

func (l *loader) checkDatabase() {
	db := l.cfg.Database
	l.checkAddress("database.url", db.URL)
	if l.has("database.leader_url") {
		l.checkAddress("database.leader_url", db.LeaderURL)
	}
	if l.ok("database.schema") && !schemaName.MatchString(db.Schema) {
		l.wrong("database.schema", "not a schema name", strconv.Quote(clip(db.Schema)),
			"a lower-case letter or _, then at most 29 letters, digits or _")
	}
	const own = 2 // the listener and the pages
	if need := own + len(l.cfg.Node.Roles); l.ok("database.pool_size") && db.PoolSize < need {
		l.wrong("database.pool_size", "too few connections", strconv.Itoa(db.PoolSize),
			fmt.Sprintf("at least %d: %d for the node and %d for its roles", need, own, len(l.cfg.Node.Roles)))
	}
}

// checkAddress checks the address of a PostgreSQL database, without a connection
// and without ever showing its password.
func (l *loader) checkAddress(path, address string) {
	if address == "" || !l.ok(path) {
		return
	}
	parsed, err := pgconn.ParseConfig(address)
	if file, ok := errors.AsType[*fs.PathError](err); ok { // of a certificate, for example
		l.wrong(path, "the address names a file that cannot be read", strconv.Quote(clip(file.Path))+": "+file.Err.Error(),
			"a file that this user may read")
		return
	}
	if err != nil || namesNoSetting(parsed.RuntimeParams) {
		l.wrong(path, "not an address of PostgreSQL", strconv.Quote(clip(redactBroken(address))),
			"postgres://USER@HOST:5432/DATABASE")
		return
	}
	l.warnLiteral(path, address)
	if strings.Contains(address, "sslmode=disable") && !localHost(parsed.Host) {
		l.warn(path, "sslmode=disable sends passwords and data in the clear to "+parsed.Host, "sslmode=require or verify-full")
	}
}

// namesNoSetting reports whether a setting has a name that PostgreSQL cannot have: an address such
// as postgres:PASSWORD@HOST?sslmode=require, without //, is read as a DSN.
func namesNoSetting(settings map[string]string) bool {
	for name := range settings {
		if !settingName.MatchString(name) {
			return true
		}
	}
	return false
}

func (l *loader) checkNode() {
	node := l.cfg.Node
	if l.ok("node.id") && (len(node.ID) > maxNodeID || !printable.MatchString(node.ID)) {
		l.wrong("node.id", "not a node id", strconv.Quote(clip(node.ID)),
			fmt.Sprintf("1 to %d printable ASCII characters without spaces", maxNodeID))
	}
	if l.ok("node.roles") && len(node.Roles) == 0 {
		l.wrong("node.roles", "no roles", "[]", "at least one of "+strings.Join(Default().Node.Roles, ", "))
	}
	known := slices.Concat(Default().Node.Roles, slices.Sorted(maps.Keys(l.cfg.Cluster.LeaderElection.Roles)))
	for i, role := range node.Roles {
		path := l.elementPath("node.roles", i)
		switch {
		case !l.ok(path):
		case !slices.Contains(known, role):
			l.wrong(path, "unknown role", strconv.Quote(clip(role)), suggest(role, known))
		case slices.Contains(node.Roles[:i], role):
			l.wrong(path, "role named twice", strconv.Quote(role), "each role once")
		}
	}
	for i, capability := range node.WorkerCapabilities {
		if path := l.elementPath("node.worker_capabilities", i); l.ok(path) && !printable.MatchString(capability) {
			l.wrong(path, "not a capability", strconv.Quote(clip(capability)), "a word without spaces")
		}
	}
	if node.APIURL != "" && l.ok("node.api_url") {
		if u, err := url.Parse(node.APIURL); err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
			l.wrong("node.api_url", "not a URL of this node", strconv.Quote(clip(redactAddress(node.APIURL))), `a URL such as "http://10.0.0.5:8080"`)
		}
	}
}

// elementPath is the path of an element, or of the whole list where an
// environment variable set it.
func (l *loader) elementPath(path string, i int) string {
	if l.given[path] != "" {
		return path
	}
	return element(path, i)
}

func (l *loader) checkCluster() {
	c := l.cfg.Cluster
	if l.ok("cluster.name") && (len(c.Name) > maxNodeID || !printable.MatchString(c.Name)) {
		l.wrong("cluster.name", "not a name", strconv.Quote(clip(c.Name)), fmt.Sprintf("1 to %d printable characters without spaces", maxNodeID))
	}
	if l.ok("cluster.name") && c.LeaderElection.ByKubernetes() && !objectName.MatchString(c.Name) {
		l.wrong("cluster.name", "not the beginning of a Lease's name", strconv.Quote(clip(c.Name)), "1 to 100 lower-case letters, digits and -, the first a letter or digit")
	}
	const path = "cluster.dead_threshold"
	if !l.ok(path) || !l.ok("cluster.heartbeat_interval") {
		return
	}
	switch {
	case c.DeadThreshold < 2*c.HeartbeatInterval:
		l.wrong(path, "a node would be dead before its second heartbeat", strconv.Quote(c.DeadThreshold.String()),
			fmt.Sprintf("at least %s, twice cluster.heartbeat_interval", 2*c.HeartbeatInterval))
	case c.DeadThreshold < 3*c.HeartbeatInterval:
		l.warn(path, "two late heartbeats would make a node dead",
			fmt.Sprintf("at least %s, three times cluster.heartbeat_interval", 3*c.HeartbeatInterval))
	}
}

func (l *loader) checkElection() {
	const section = "cluster.leader_election"
	e := l.cfg.Cluster.LeaderElection
	lease, refresh, lock := section+".lease_duration", section+".refresh_interval", section+".lock_timeout"
	if l.ok(lease) && l.ok(refresh) {
		switch {
		case e.LeaseDuration <= e.RefreshInterval:
			l.wrong(l.firstGiven(refresh, lease), "the lease runs out before it is refreshed",
				fmt.Sprintf("lease_duration %s, refresh_interval %s", e.LeaseDuration, e.RefreshInterval),
				"refresh_interval of at most a third of lease_duration")
		case e.RefreshInterval >= e.LeaseDuration/10*8:
			l.wrong(l.firstGiven(refresh, lease), "a leader trusts its lead for 0.8 of the lease, and would lose it before each refresh",
				fmt.Sprintf("lease_duration %s, refresh_interval %s", e.LeaseDuration, e.RefreshInterval),
				"refresh_interval of at most a third of lease_duration")
		case e.RefreshInterval > e.LeaseDuration/3:
			l.warn(l.firstGiven(refresh, lease), fmt.Sprintf("refresh_interval %s is more than a third of lease_duration %s: one lost refresh may cost the lead",
				e.RefreshInterval, e.LeaseDuration), fmt.Sprintf("at most %s", e.LeaseDuration/3))
		}
	}
	if l.ok(lease) && e.LeaseDuration < Duration(2e9) {
		l.warn(lease, "a lease under 2s is lost to short pauses", `"3s"`)
	}
	if l.ok(lease) && l.ok(lock) && e.LockTimeout >= e.LeaseDuration {
		l.wrong(l.firstGiven(lock, lease), "waiting for a lock would outlast the lease",
			fmt.Sprintf("lock_timeout %s, lease_duration %s", e.LockTimeout, e.LeaseDuration), "lock_timeout below lease_duration")
	}
	if check := section + ".check_interval"; l.ok(lease) && l.ok(check) && e.CheckInterval > e.LeaseDuration {
		l.warn(l.firstGiven(check, lease), fmt.Sprintf("check_interval %s is longer than lease_duration %s: a free role waits that long",
			e.CheckInterval, e.LeaseDuration), "at most lease_duration")
	}
	l.checkRoles(section + ".roles")
}

// firstGiven returns the first path that the user set, to blame what was
// written rather than a default.
func (l *loader) firstGiven(paths ...string) string {
	for _, path := range paths {
		if l.has(path) {
			return path
		}
	}
	return paths[0]
}

// checkRoles checks that no two roles share a lock.
func (l *loader) checkRoles(section string) {
	ids := maps.Clone(lockIDs)
	overrides := l.cfg.Cluster.LeaderElection.Roles
	for role, override := range overrides {
		if override.LockID != 0 {
			ids[role] = override.LockID
		}
	}
	for _, role := range slices.Sorted(maps.Keys(overrides)) {
		path := join(section, role)
		if !roleName.MatchString(role) {
			l.wrongKey(path, "not a role name", "a lower-case letter, then at most 62 letters, digits or _")
		}
		if near := nearest(role, slices.Collect(maps.Keys(lockIDs))); near != "" && near != role {
			l.warn(path, "a custom role, named almost like a built-in one", strconv.Quote(near))
		}
		l.checkTakeover(path+".takeover_delay", role, overrides[role])
		path += ".lock_id"
		l.checkLockID(path, overrides[role].LockID)
		for _, other := range slices.Sorted(maps.Keys(ids)) {
			reportedThere := other > role && overrides[other].LockID != 0
			if other != role && ids[role] == ids[other] && ids[role] != 0 && !reportedThere {
				l.wrong(path, "the role "+other+" has the same lock", strconv.FormatInt(ids[role], 10), "a number that no other role has")
			}
		}
	}
}

const (
	// maxMovedLockID is the highest lock_id that a namespace above 0 can move.
	maxMovedLockID = 1<<56 - 1
	// migrationLockID is the advisory lock of migrations.
	migrationLockID = 0x464F524745_00FF
)

// checkLockID looks at a lock_id by itself.
func (l *loader) checkLockID(path string, id int64) {
	namespace := l.cfg.Cluster.LockNamespace
	switch got := strconv.FormatInt(id, 10); {
	case !l.has(path) || !l.ok(path):
	case id == 0:
		l.wrong(path, "0 stands for no lock", got, "any other whole number, or no lock_id")
	case id == migrationLockID:
		l.wrong(path, "forge migrate has the same lock", got, "another number")
	case namespace > 0 && (id < 0 || id > maxMovedLockID):
		l.wrong(path, fmt.Sprintf("out of reach of lock_namespace %d", namespace), got,
			fmt.Sprintf("1 to %d, or no lock_namespace", maxMovedLockID))
	}
}

// localHost says whether a host is this machine: a loopback address, localhost or
// the directory of a Unix socket.
func localHost(host string) bool {
	if host == "localhost" || strings.HasPrefix(host, "/") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// checkDeadman never shows the address: it is as good as a password.
func (l *loader) checkDeadman() {
	const path = "metrics.deadman_url"
	address := l.cfg.Metrics.DeadmanURL
	if address == "" || !l.ok(path) {
		return
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		l.wrong(path, "not a URL", "", "https://HOST/PATH")
		return
	}
	l.warnPrivate(path, u.Hostname())
}
