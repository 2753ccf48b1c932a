package forge

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/compactstore"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/rollupstore"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// source connects the pages to the stores.
func (n *Node) source() cluster.Source {
	jobs := jobstore.New(n.pool)
	return cluster.Source{
		Leadership: leadershipReader{leaderstore.New(n.pool), n.pool, n.cfg},
		Nodes:      nodeReader{n.pool},
		Health:     healthReader{n},
		Crons:      cronstore.New(n.pool),
		Explain:    explain.New(n.pool),
		Jobs:       jobReader{jobs, assign.NewExplainer(n.pool, assign.Rules{Strategy: n.cfg.Scheduler.Assignment, Policy: n.policy()})},
		Counts:     jobs,
		Queues:     jobs,
		Dead:       jobs,
		Events:     eventReader{n.pool},
		Compaction: compactionReader{n.pool},
		History:    historyReader{n.pool},
		Alerts:     alerts.New(n.pool),
	}
}

func (n *Node) appliedHash(ctx context.Context) (string, error) {
	return cronstore.New(n.pool).HashInForce(ctx)
}

// differs returns what another configuration would change against the one in force. The
// result for two hashes never changes and is cached.
func (n *Node) differs(ctx context.Context, applied, other string) (string, error) {
	key := [2]string{applied, other}
	if known, ok := n.differences.Load(key); ok {
		return known.(string), nil
	}
	inForce, drifts, err := cronstore.New(n.pool).Drifts(ctx, []string{other})
	if err != nil {
		return "", err
	}
	text := drifts[other].String()
	if inForce == applied { // no newer one was applied
		n.differences.Store(key, text)
	}
	return text, nil
}

type leadershipReader struct {
	*leaderstore.Store

	pool *pgxpool.Pool
	cfg  *Config
}

func (r leadershipReader) Leaders(ctx context.Context) ([]leaderstore.Leader, error) {
	return doctor.LeadersWithHolders(ctx, r.pool, r.cfg)
}

func (r leadershipReader) Rates(ctx context.Context) (rollupstore.Rates, error) {
	return rollupstore.ReadRates(ctx, r.pool)
}

type nodeReader struct{ pool *pgxpool.Pool }

func (r nodeReader) List(ctx context.Context) ([]nodestore.Node, error) {
	return nodestore.Observe(ctx, r.pool)
}

type healthReader struct{ node *Node }

// Causes evaluates the health first if the causes are not in the events yet: the process
// that changed the cluster may have died before it evaluated the health.
func (r healthReader) Causes(ctx context.Context) ([]string, error) {
	causes, recorded, err := eventstore.Causes(ctx, r.node.pool)
	if err == nil && !recorded {
		if _, err := r.node.healthWatcher.evaluate(ctx); err != nil {
			r.node.logger.DebugContext(ctx, "could not evaluate the cluster's health, will retry at the next read", "error", err)
		}
	}
	return causes, err
}

func (r healthReader) Hazards(ctx context.Context) ([]hazards.Hazard, error) {
	facts, err := hazards.Read(ctx, r.node.pool)
	return facts.Find(), err
}

// jobReader reads jobs and explains where they run.
type jobReader struct {
	*jobstore.Store
	*assign.Explainer
}

type eventReader struct{ pool *pgxpool.Pool }

func (r eventReader) Find(ctx context.Context, filter eventstore.Filter) ([]eventstore.Event, error) {
	return eventstore.Find(ctx, r.pool, filter)
}

func (r eventReader) CheckTypes(ctx context.Context, types []string) error {
	return eventstore.CheckTypes(ctx, r.pool, types)
}

type compactionReader struct{ pool *pgxpool.Pool }

func (r compactionReader) Status(ctx context.Context, limit int) (compactstore.Status, error) {
	return compactstore.Read(ctx, r.pool, limit)
}

type historyReader struct{ pool *pgxpool.Pool }

func (r historyReader) Range(ctx context.Context, q rollupstore.Query) ([]rollupstore.Row, error) {
	return rollupstore.Range(ctx, r.pool, q)
}

func (r historyReader) Sums(ctx context.Context, q rollupstore.SumQuery) ([]rollupstore.Sum, error) {
	return rollupstore.Sums(ctx, r.pool, q)
}

// tokenReader verifies and manages tokens.
type tokenReader struct{ pool *pgxpool.Pool }

func (r tokenReader) Verify(ctx context.Context, token string) (access.Holder, error) {
	return access.Verify(ctx, r.pool, token)
}

func (r tokenReader) Session(ctx context.Context, session string) (access.Holder, error) {
	return access.Session(ctx, r.pool, session)
}

func (r tokenReader) Login(ctx context.Context, token string) (session string, of access.Holder, err error) {
	return access.Login(ctx, r.pool, token)
}

func (r tokenReader) Logout(ctx context.Context, session string) error {
	return access.Logout(ctx, r.pool, session)
}

func (r tokenReader) List(ctx context.Context) ([]access.Token, error) {
	return access.ListTokens(ctx, r.pool)
}

func (r tokenReader) Create(ctx context.Context, wanted access.NewToken) (secret string, token access.Token, err error) {
	return access.CreateToken(ctx, requestDB(r), wanted)
}

// noAuthTokens is the token store of a listener without authentication.
type noAuthTokens struct{ tokenReader }

// Create returns access.ErrOpen.
func (noAuthTokens) Create(context.Context, access.NewToken) (secret string, token access.Token, err error) {
	return "", access.Token{}, access.ErrOpen
}

func (r tokenReader) Revoke(ctx context.Context, name, by string) (access.Token, error) {
	return access.RevokeToken(ctx, requestDB(r), name, by)
}

// ownFile gives the dashboard access to the node's current configuration.
type ownFile struct{ *Node }

func (f ownFile) Plan(ctx context.Context, ahead time.Duration) (cronstore.Plan, error) {
	return MakePlan(ctx, f.pool, f.current.Load(), ahead)
}

func (f ownFile) Apply(ctx context.Context, confirm func(cronstore.Review) error) (cronstore.Outcome, error) {
	return apply(ctx, requestDB{f.pool}, f.current.Load(), true, confirm)
}

func (f ownFile) CheckAlerts() ([]alerts.Problem, error) {
	if f.opts.alerts == nil {
		return nil, alerts.ErrNoEngine
	}
	return alerts.CheckFile(f.current.Load(), f.opts.alerts.Judge), nil
}

func (f ownFile) ExportAlerts() ([]byte, error) {
	if f.opts.alerts == nil {
		return nil, alerts.ErrNoEngine
	}
	return f.opts.alerts.Export(alerts.RulesOf(f.current.Load()))
}

// auditor records requests in the audit log.
type auditor struct{ pool *pgxpool.Pool }

func (a auditor) Begin(ctx context.Context, e access.AuditEntry) (id int64, err error) {
	return access.BeginAudit(ctx, a.pool, e)
}

func (a auditor) End(ctx context.Context, id int64, outcome, detail string) error {
	return access.EndAudit(ctx, a.pool, id, outcome, detail)
}

func (a auditor) List(ctx context.Context, filter access.AuditFilter) ([]access.AuditEntry, error) {
	return access.ListAudit(ctx, a.pool, filter)
}
