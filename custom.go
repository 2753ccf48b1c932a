package forge

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// ErrDeposed means that a term is over. A writer for that term must roll back and stop.
var ErrDeposed = leaderstore.ErrDeposed

// RoleFunc is the work of a role's leader. It runs during one term and must return soon
// after ctx ends. Until it has returned, this node is no candidate for the role. A return
// before the end of ctx gives the role up, and another node may lead.
type RoleFunc func(ctx context.Context, term Term) error

// Term is a term of this node in a custom role. It lasts until the context of the work
// ends.
type Term struct {
	Role   string
	Number int64
	NodeID string

	fence  leaderstore.Fence
	pool   *pgxpool.Pool
	report func()
}

// Check is the fence. Call it first in each transaction that writes for the term, and roll
// back if it returns ErrDeposed. After it has succeeded, no other term of the role can
// begin before tx ends, so keep tx short.
func (t Term) Check(ctx context.Context, tx pgx.Tx) error {
	_, err := t.fence.Check(ctx, tx)
	return err
}

// Publish replaces the metadata of the role for the rest of the term. Other programs read
// it in forge_leaders.metadata, with forge leader status and in the API.
func (t Term) Publish(ctx context.Context, metadata any) error {
	body, err := encodeMetadata(t.Role, metadata)
	if err != nil {
		return err
	}
	return leaderstore.New(t.pool).Publish(ctx, t.fence, body)
}

// Report reports progress of the work. Work that never calls it keeps its role as long as
// its process lives. After the first call, each call must follow the previous one within
// one lease; otherwise the role goes to another node. Report does nothing for a Term from
// Leads or RunIfLeader.
func (t Term) Report() {
	if t.report != nil {
		t.report()
	}
}

// RoleOption configures a role that WithRole adds.
type RoleOption func(*customRole)

// RoleLockID sets the lock id of the role, any number but 0, instead of an id derived from
// its name. With a cluster.lock_namespace above 0 it has at most 56 bits. A lock_id in the
// file takes precedence.
func RoleLockID(id int64) RoleOption { return func(r *customRole) { r.lockID = id } }

// RoleTakeoverDelay sets how long the work waits after the leadership changed, unless the
// predecessor stopped in order. It defaults to one lease: by then, a predecessor that lost
// its session has certainly stopped. Work that calls Term.Check in all of its transactions
// needs no delay. A section of the file for the role takes precedence.
func RoleTakeoverDelay(d time.Duration) RoleOption {
	return func(r *customRole) { r.takeoverDelay = &d }
}

// RoleMetadata sets the JSON metadata that is published in the role's row with each term of
// this node.
func RoleMetadata(metadata any) RoleOption { return func(r *customRole) { r.metadata = metadata } }

// WithRole adds a custom role, which one node of the cluster leads at a time. The name is a
// lower-case letter and at most 62 more letters, digits or _.
func WithRole(name string, work RoleFunc, opts ...RoleOption) Option {
	role := customRole{name: name, work: work}
	for _, opt := range opts {
		opt(&role)
	}
	return func(o *options) { o.roles = append(o.roles, role) }
}

type customRole struct {
	name          string
	work          RoleFunc
	lockID        int64
	takeoverDelay *time.Duration
	metadata      any
}

// participates reports whether this node is a candidate for a role. A custom role is
// included in the default of node.roles, and must be listed in any other value.
func (n *Node) participates(role string) bool {
	if n.cfg.Node.HasRole(role) {
		return true
	}
	byDefault := slices.Equal(n.cfg.Node.Roles, config.Default().Node.Roles)
	return byDefault && slices.ContainsFunc(n.opts.roles, func(r customRole) bool { return r.name == role })
}

// roleNames lists the built-in and custom roles, even those in which this node is no
// candidate.
func (n *Node) roleNames() []string {
	names := make([]string, 0, len(roles.All())+len(n.opts.roles))
	for _, role := range roles.All() {
		names = append(names, string(role))
	}
	for _, role := range n.opts.roles {
		names = append(names, role.name)
	}
	return names
}

// participatingRoles returns the effective node.roles.
func (n *Node) participatingRoles() []string {
	var names []string
	for _, name := range append([]string{workerRole}, n.roleNames()...) {
		if n.participates(name) {
			names = append(names, name)
		}
	}
	return names
}

// customRoleConfigs returns the custom roles. It checks them even if this node is no
// candidate.
func (n *Node) customRoleConfigs() ([]roles.RoleConfig, error) {
	n.metadata = map[string]json.RawMessage{}
	var roleConfigs []roles.RoleConfig
	for _, role := range n.opts.roles {
		if err := roles.CheckCustom(role.name); err != nil {
			return nil, err
		}
		own := n.electionConfig().Roles[role.name].LockID
		if own == 0 {
			own = role.lockID
		}
		lock, err := roles.Lock(roles.Role(role.name), own, n.cfg.Cluster.LockNamespace)
		if err != nil {
			return nil, err
		}
		if n.metadata[role.name], err = encodeMetadata(role.name, role.metadata); err != nil {
			return nil, err
		}
		roleConfigs = append(roleConfigs, roles.RoleConfig{
			Role: roles.Role(role.name), LockID: lock.ID, BySchema: lock.BySchema, Lead: n.customLeaderFunc(role),
			TakeoverDelay: n.customDelay(role),
		})
	}
	return roleConfigs, nil
}

// customLeaderFunc runs the work of a custom role with its Term. The watchdog starts with the
// first report.
func (n *Node) customLeaderFunc(role customRole) roles.LeaderFunc {
	return func(ctx context.Context, fence leaderstore.Fence, watch *watchdog.Watchdog) error {
		watched := sync.OnceValue(func() context.Context { return watch.Context(ctx, role.name) })
		report := func() { watchdog.Report(watched()) } //nolint:contextcheck // the context of the work
		return role.work(ctx, n.term(fence, report))
	}
}

func (n *Node) customDelay(role customRole) time.Duration {
	if section, ok := n.electionConfig().Roles[role.name]; ok {
		return section.TakeoverDelay.Std()
	}
	if role.takeoverDelay != nil {
		return *role.takeoverDelay
	}
	return n.electionConfig().LeaseDuration.Std()
}

// maxMetadata limits the metadata in bytes, because every read of the leaders returns it.
const maxMetadata = 8 << 10

func encodeMetadata(role string, metadata any) (json.RawMessage, error) {
	if metadata == nil {
		return json.RawMessage("{}"), nil
	}
	body, err := json.Marshal(metadata)
	if err != nil {
		return nil, fmt.Errorf("encode the metadata of role %s: %w", role, err)
	}
	if len(body) > maxMetadata {
		return nil, fmt.Errorf("the metadata of role %s has %d bytes; want at most %d", role, len(body), maxMetadata)
	}
	return body, nil
}
