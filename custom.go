package forge

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// ErrDeposed says that a term is over: whoever wanted to write in its name must
// roll back and stop.
var ErrDeposed = leaderstore.ErrDeposed

// RoleFunc is the work of a role's leader. It runs while its term lasts and must
// return soon after ctx ends; until it has, this node does not stand for the role
// again. To return before that gives the role up, and another node may try.
type RoleFunc func(ctx context.Context, term Term) error

// Term is the right to lead a role of one's own, until its context ends.
type Term struct {
	Role   string
	Number int64
	NodeID string

	fence  leaderstore.Fence
	pool   *pgxpool.Pool
	report func()
}

// Check is the fence: call it first in a transaction that writes in the term's
// name, and roll back when it returns ErrDeposed. After it has succeeded no other
// term of the role can begin before tx has ended, so keep tx short.
func (t Term) Check(ctx context.Context, tx pgx.Tx) error {
	_, err := t.fence.Check(ctx, tx)
	return err
}

// Publish replaces the metadata of the role, which others read in
// forge_leaders.metadata, by forge leader status and over the API. It goes with
// the term.
func (t Term) Publish(ctx context.Context, metadata any) error {
	body, err := encodeMetadata(t.Role, metadata)
	if err != nil {
		return err
	}
	return t.fence.Publish(ctx, t.pool, body)
}

// Report says that the work turns. Work that never calls it keeps its role as
// long as its process lives; after the first call each must follow the one before
// within a lease, or the role goes to another node. It does nothing for a Term of
// Leads and RunIfLeader.
func (t Term) Report() {
	if t.report != nil {
		t.report()
	}
}

// RoleOption changes a role that WithRole adds.
type RoleOption func(*customRole)

// RoleLockID gives the role a lock id of its own, any number but 0, instead of one
// that is made from its name. With a cluster.lock_namespace above 0 it has at most 56
// bits. A lock_id in the file goes before it.
func RoleLockID(id int64) RoleOption { return func(r *customRole) { r.lockID = id } }

// RoleTakeoverDelay is how long the work waits after the lead changed hands,
// unless the predecessor went in order. It defaults to one lease, within which a
// predecessor that lost its session has stopped for certain; work that Check
// fences throughout needs none. A section of the file for the role goes before
// it.
func RoleTakeoverDelay(d time.Duration) RoleOption {
	return func(r *customRole) { r.takeoverDelay = &d }
}

// RoleMetadata is published in the role's row as JSON when this node begins to
// lead it.
func RoleMetadata(metadata any) RoleOption { return func(r *customRole) { r.metadata = metadata } }

// WithRole lets the node stand for a role of the program's own, which one node of
// the cluster leads at a time. The name has a lower-case letter first and then at
// most 62 letters, digits or _.
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

// stands says whether this node takes part in a role: the program's own roles
// come with the default of node.roles, and must be listed where that is another.
func (n *Node) stands(role string) bool {
	if n.cfg.Node.HasRole(role) {
		return true
	}
	byDefault := slices.Equal(n.cfg.Node.Roles, config.Default().Node.Roles)
	return byDefault && slices.ContainsFunc(n.opts.roles, func(r customRole) bool { return r.name == role })
}

// roleNames lists the built-in roles and the program's own, whether or not this
// node stands for them.
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

// takesPartIn is node.roles as it is for this process.
func (n *Node) takesPartIn() []string {
	var names []string
	for _, name := range append([]string{workerRole}, n.roleNames()...) {
		if n.stands(name) {
			names = append(names, name)
		}
	}
	return names
}

// customContests are the program's own roles; they are checked also where this
// node does not stand for them.
func (n *Node) customContests() ([]roles.Contest, error) {
	n.metadata = map[string]json.RawMessage{}
	var contests []roles.Contest
	for _, role := range n.opts.roles {
		if err := roles.CheckCustom(role.name); err != nil {
			return nil, err
		}
		own := n.election().Roles[role.name].LockID
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
		contests = append(contests, roles.Contest{
			Role: roles.Role(role.name), LockID: lock.ID, BySchema: lock.BySchema, Duty: n.customDuty(role),
			Takeover: roles.AfterTakeover(n.customDelay(role), n.pool, n.logger),
		})
	}
	return contests, nil
}

// customDuty hands the program its term.
func (n *Node) customDuty(role customRole) roles.Duty {
	return roles.Unwatched(func(ctx context.Context, fence leaderstore.Fence) error {
		report, end := promise(ctx, role.name)
		defer end()
		return role.work(ctx, n.term(fence, report))
	})
}

func (n *Node) customDelay(role customRole) time.Duration {
	if section, ok := n.election().Roles[role.name]; ok {
		return section.TakeoverDelay.Std()
	}
	if role.takeoverDelay != nil {
		return *role.takeoverDelay
	}
	return n.election().LeaseDuration.Std()
}

// promise lets work be watched from its first report on.
func promise(ctx context.Context, name string) (report, end func()) {
	var begun atomic.Bool
	begin := sync.OnceValues(func() (context.Context, func()) {
		begun.Store(true)
		return progress.Begin(ctx, name)
	})
	report = func() { //nolint:contextcheck // the work's own context
		watched, _ := begin()
		progress.Report(watched)
	}
	end = func() {
		if begun.Load() {
			_, stop := begin()
			stop()
		}
	}
	return report, end
}

// maxMetadata is the most bytes of metadata: every reader of the leaders gets
// it.
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
