package forge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/dashboard"
	"github.com/forge-scheduler/forge/dashboard/api"
	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/pages"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/activity"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/incident"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/queues"
	"github.com/forge-scheduler/forge/jobs"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
	"github.com/forge-scheduler/forge/scheduler/assign"
	"github.com/forge-scheduler/forge/scheduler/crons"
)

const (
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	// Limits outside of the handlers: before a handler is called, and after it.
	readTimeout  = 15 * time.Second
	writeTimeout = 2 * time.Minute
	maxHeader    = 32 << 10
	// requestDrain is how long pending requests may take when the node stops. Streams end
	// at once.
	requestDrain = 5 * time.Second
)

// openListener opens the listener, with the certificate if TLS is configured.
func (n *Node) openListener() (net.Listener, error) {
	listener, err := net.Listen("tcp", n.cfg.HTTP.Listen) //nolint:noctx // returns at once
	if err != nil {
		return nil, fmt.Errorf("%w; choose another address with http.listen or --listen", err)
	}
	listener = newConnections(listener, n.cfg.HTTP.MaxConnections, n.cfg.HTTP.MaxConnectionsPerAddress)
	if !n.cfg.HTTP.ByTLS() {
		return listener, nil
	}
	cert, err := newCertificate(n.cfg.HTTP.TLSCertFile, n.cfg.HTTP.TLSKeyFile, n.logger)
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return tls.NewListener(listener, cert.config()), nil
}

// urlOf returns the URL at which other nodes reach the listener. A listener on all
// addresses is reached by the host name.
func (n *Node) urlOf(address net.Addr) string {
	scheme, hostport := "http://", address.String()
	if n.cfg.HTTP.ByTLS() {
		scheme = "https://"
	}
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() && n.self.Hostname != "" {
		hostport = net.JoinHostPort(n.self.Hostname, strconv.Itoa(tcp.Port))
	}
	return scheme + hostport
}

// listen serves pages, probes and the API until ctx ends.
func (n *Node) listen(ctx context.Context, listener net.Listener) error {
	serving, stopStreams := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStreams()
	handler := n.handler(serving)
	var recording sync.WaitGroup
	recording.Go(func() { handler.Run(serving) })
	defer func() { stopStreams(); recording.Wait() }()
	requests, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	server := newServer(requests, handler)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	stopStreams() // requests continue
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestDrain)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		cutOff()
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

// newServer limits how long a client may take to send a request and to read the response.
// The handlers have narrower limits; streams have none.
func newServer(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnState:         connectionChanged,
		ConnContext:       withConnection,
		IdleTimeout:       idleTimeout,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
}

// handler assembles the dashboard, the API and the probes.
func (n *Node) handler(ctx context.Context) *dashboard.Handler {
	return dashboard.New(dashboard.Options{ //nolint:contextcheck // its handlers use the contexts of their requests
		Cluster: n.clusterOptions(ctx),
		Auth: auth.Options{
			Tokens:         n.tokens(),
			Users:          n.users(),
			Audit:          access.NewAudit(n.pool),
			AllowedHosts:   n.allowedHosts(),
			TrustedProxies: n.cfg.HTTP.ProxyRanges(),
			Concurrent:     n.cfg.Database.PoolSize / 2, // the other half is for roles and jobs
			Beyond:         isOverLimit,
		},
		API: api.Options{
			Leads:          func(role string) (leaderstore.Fence, bool) { return n.elections.Leads(roles.Role(role)) },
			File:           ownFile{n},
			Once:           access.NewKeys(n.pool),
			Metrics:        n.metrics.Handler(n.tracer != nil),
			ClusterMetrics: aggregator.Exposition(n.pool, n.metrics.Series()),
		},
		Pages: pages.Options{
			Applied: cronstore.New(n.pool).HashInForce,
			Differs: newComparer(n.pool).differs,
			Changes: n.broadcaster,
			File:    ownFile{n},
		},
		NoPages: !n.cfg.Dashboard.Enabled,
	})
}

// clusterOptions returns what pages and API do. Their operations run in the transaction of
// the request if it has an idempotency key.
func (n *Node) clusterOptions(ctx context.Context) cluster.Options {
	db := postgres.RequestDB{Pool: n.pool}
	jobOps := jobstore.New(db)
	return cluster.Options{
		Source: n.source(),
		Self: cluster.Self{
			Cluster: n.cfg.Cluster.Name, NodeID: n.cfg.Node.ID, Incarnation: n.incarnation,
			Version: n.opts.version, APIURL: n.self.APIURL,
		},
		Roles:         n.roleNames(),
		Ready:         n.ready,
		Outage:        n.outage.String,
		CronOps:       cronstore.New(db),
		CronRunner:    crons.Manual{DB: db, Inserter: n.runner, Tracer: n.tracer, NodeID: n.cfg.Node.ID},
		JobOps:        jobOps,
		Enqueuer:      jobs.NewEnqueuer(db, n.runner),
		QueueOps:      jobOps,
		DeadLetterOps: jobOps,
		RoleOps:       handover.New(db, n.broadcaster.Subscribe),
		Silencer:      alerts.New(db),
		TokenKeeper:   n.tokenKeeper(),
		SessionKeeper: access.NewUserSessions(db),
		Settings:      n.settings(),
		Configs:       configs{cronstore.New(n.pool), n},
		Doctor:        n.diagnose,
		Logger:        n.logger,
		Lifetime:      ctx,
	}
}

// source returns what pages and API read.
func (n *Node) source() cluster.Source {
	jobStore := jobstore.New(n.pool)
	return cluster.Source{
		Leadership: leadership{leaderstore.New(n.pool), n.pool, n.cfg},
		Incidents:  incident.New(n.pool, n.cfg.Retention.CronTicks.Std()),
		Nodes:      nodestore.New(n.pool),
		Health:     n.healthWatcher,
		Crons:      cronstore.New(n.pool),
		Explain:    explain.New(n.pool),
		Jobs:       explainedJobs{jobStore, assign.NewExplainer(n.pool, assign.Rules{Strategy: n.cfg.Scheduler.Assignment, Policy: n.policy()})},
		Counts:     jobStore,
		Queues:     jobStore,
		Reports:    queues.New(n.pool),
		Dead:       jobStore,
		Events:     eventstore.New(n.pool),
		Activity:   activity.New(n.pool),
		Compaction: compactor.NewStore(n.pool),
		History:    aggregator.NewStore(n.pool),
		Alerts:     alerts.New(n.pool),
	}
}

// leadership reads the roles' leaders, with the holders of their locks, and their history.
type leadership struct {
	*leaderstore.Store

	pool *pgxpool.Pool
	cfg  *Config
}

func (r leadership) Leaders(ctx context.Context) ([]leaderstore.Leader, error) {
	return doctor.LeadersWithHolders(ctx, r.pool, r.cfg)
}

func (r leadership) Rates(ctx context.Context) (aggregator.Rates, error) {
	return aggregator.NewStore(r.pool).Rates(ctx)
}

// explainedJobs reads jobs and explains where they run.
type explainedJobs struct {
	*jobstore.Store
	*assign.Explainer
}

// comparer compares configurations with the one in force.
type comparer struct {
	store *cronstore.Store
	known sync.Map // descriptions of the differences by pair of hashes
}

func newComparer(pool *pgxpool.Pool) *comparer { return &comparer{store: cronstore.New(pool)} }

// differs returns what another configuration would change against the one in force. The
// result for two hashes never changes and is cached.
func (c *comparer) differs(ctx context.Context, applied, other string) (string, error) {
	key := [2]string{applied, other}
	if known, ok := c.known.Load(key); ok {
		return known.(string), nil
	}
	inForce, drifts, err := c.store.Drifts(ctx, []string{other})
	if err != nil {
		return "", err
	}
	text := drifts[other].String()
	if inForce == applied { // no newer one was applied
		c.known.Store(key, text)
	}
	return text, nil
}

// tokens returns a nil interface if no token is required.
func (n *Node) tokens() auth.Tokens {
	if !n.cfg.Dashboard.ByToken() {
		return nil
	}
	return n.accessTokens()
}

func (n *Node) accessTokens() *access.Tokens {
	return access.NewTokens(postgres.RequestDB{Pool: n.pool})
}

// tokenKeeper returns the token store of the listener.
func (n *Node) tokenKeeper() cluster.TokenKeeper {
	if !n.cfg.Dashboard.ByToken() {
		return noAuthTokens{n.accessTokens()}
	}
	return n.accessTokens()
}

// allowedHosts returns the host names that requests may use: those of loopback, of
// http.allowed_hosts, of the node's URL and of the pages' URL for users. A listener that is not local also accepts the
// host name and every IP address.
func (n *Node) allowedHosts() []string {
	hosts := append(auth.LoopbackHosts(), n.cfg.HTTP.AllowedHosts...)
	if !n.cfg.HTTP.Local() {
		hosts = append(hosts, auth.AnyAddress, n.self.Hostname)
	}
	for _, address := range []string{n.self.APIURL, n.cfg.Dashboard.OIDC.RedirectURL} {
		if u, err := url.Parse(address); err == nil && u.Host != "" {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts
}

// settings caches the effective configuration, because it can be long.
func (n *Node) settings() func() map[string]any {
	var mu sync.Mutex
	var of *Config
	var tree map[string]any
	return func() map[string]any {
		mu.Lock()
		defer mu.Unlock()
		if now := n.current.Load(); now != of {
			of, tree = now, now.Effective()
		}
		return tree
	}
}

// noAuthTokens is the token store of a listener without authentication.
type noAuthTokens struct{ *access.Tokens }

// Create returns access.ErrOpen.
func (noAuthTokens) Create(context.Context, access.NewToken) (secret string, token access.Token, err error) {
	return "", access.Token{}, access.ErrOpen
}
