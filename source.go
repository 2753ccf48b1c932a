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

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// source connects the pages to the stores.
func (n *Node) source() cluster.Source {
	jobs := jobstore.New(n.pool)
	return cluster.Source{
		Leadership: leadershipReader{leaderstore.New(n.pool), n.pool, n.cfg},
		Nodes:      nodestore.New(n.pool),
		Health:     healthReader{n},
		Crons:      cronstore.New(n.pool),
		Explain:    explain.New(n.pool),
		Jobs:       jobReader{jobs, assign.NewExplainer(n.pool, assign.Rules{Strategy: n.cfg.Scheduler.Assignment, Policy: n.policy()})},
		Counts:     jobs,
		Queues:     jobs,
		Dead:       jobs,
		Events:     eventstore.New(n.pool),
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

type healthReader struct{ node *Node }

// Causes evaluates the health first if the causes are not in the events yet: the process
// that changed the cluster may have died before it evaluated the health.
func (r healthReader) Causes(ctx context.Context) ([]string, error) {
	causes, recorded, err := eventstore.New(r.node.pool).Causes(ctx)
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

// noAuthTokens is the token store of a listener without authentication.
type noAuthTokens struct{ *access.Tokens }

// Create returns access.ErrOpen.
func (noAuthTokens) Create(context.Context, access.NewToken) (secret string, token access.Token, err error) {
	return "", access.Token{}, access.ErrOpen
}

// ownFile gives the dashboard access to the node's current configuration.
type ownFile struct{ *Node }

func (f ownFile) Plan(ctx context.Context, ahead time.Duration) (cronstore.Plan, error) {
	return MakePlan(ctx, f.pool, f.current.Load(), ahead)
}

func (f ownFile) Apply(ctx context.Context, confirm func(cronstore.Review) error) (cronstore.Outcome, error) {
	return apply(ctx, postgres.RequestDB{Pool: f.pool}, f.current.Load(), true, confirm)
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
