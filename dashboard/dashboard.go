package dashboard

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/compactstore"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/rollupstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// SchedulerRole is the role whose leader counts as the cluster's leader in the documents
// under /cluster.
const SchedulerRole = "scheduler"

// Leadership reads the current leaders and past tenures.
type Leadership interface {
	// Leaders returns every role, including vacant ones.
	Leaders(ctx context.Context) ([]leaderstore.Leader, error)
	// History returns at most limit tenures of a role, or of all roles if role is empty,
	// newest first.
	History(ctx context.Context, role string, limit int) ([]leaderstore.Tenure, error)
	// HistoryAfter is like History but starts after a cursor.
	HistoryAfter(ctx context.Context, role string, after leaderstore.Cursor, limit int) ([]leaderstore.Tenure, error)
	// Rates returns how many renewals and heartbeats of leaders succeeded.
	Rates(ctx context.Context) (rollupstore.Rates, error)
}

// Nodes reads the members of the cluster.
type Nodes interface {
	List(ctx context.Context) ([]nodestore.Node, error)
}

// Health reads the state of the cluster's health.
type Health interface {
	// Causes returns the reasons why the cluster is degraded. The cluster is healthy if
	// there are none.
	Causes(ctx context.Context) ([]string, error)
	// Hazards returns conditions that stop work although nodes and roles are up.
	Hazards(ctx context.Context) ([]hazards.Hazard, error)
}

// Crons reads the crons in force and their ledger.
type Crons interface {
	// Outline returns the crons in force, ordered by the bytes of their names, without most of their fields. It takes
	// its previous result. Some returns the named crons with all fields.
	Outline(ctx context.Context, before []cronstore.Outlined) ([]cronstore.Outlined, error)
	Some(ctx context.Context, names []string) ([]cronstore.Cron, error)
	// Get returns one cron, even if it was removed, or cronstore.ErrNotFound.
	Get(ctx context.Context, name string) (cronstore.Cron, error)
	// Ticks returns at most limit ticks of a cron that were due before an instant (zero:
	// the newest), newest first.
	Ticks(ctx context.Context, cron string, before time.Time, limit int) ([]cronstore.Tick, error)
	// NewestTicks returns at most limit of the newest ticks of each of these crons, newest
	// first.
	NewestTicks(ctx context.Context, crons []string, limit int) (map[string][]cronstore.Tick, error)
}

// Explain explains the ticks of crons.
type Explain interface {
	// Why explains the verdict of a tick. It returns cronstore.ErrNotFound if there is no
	// such cron.
	Why(ctx context.Context, cron string, tick time.Time) (explain.Explanation, error)
	// Notifications returns the sent and pending notifications of failed runs of these
	// ticks.
	Notifications(ctx context.Context, cron string, ticks []time.Time) ([]alerts.Notification, error)
}

// Jobs reads jobs and their output.
type Jobs interface {
	// List returns jobs by descending id.
	List(ctx context.Context, filter jobstore.Filter) ([]jobstore.Job, error)
	// Get returns jobstore.ErrNotFound when there is no such job.
	Get(ctx context.Context, id int64) (jobstore.Job, error)
	// States returns the states of these jobs, without those that no longer exist.
	States(ctx context.Context, ids []int64) (map[int64]string, error)
	// Logs returns the chunks of an attempt's output that follow afterSeq, at most one
	// batch. An empty result means that there are no more.
	Logs(ctx context.Context, id int64, attempt, afterSeq int) ([]jobstore.LogChunk, error)
	// Placement explains where a job will run, why it waits, or which nodes ran it.
	Placement(ctx context.Context, id int64) (explain.Placement, error)
}

// Counts reads how many jobs are in each state.
type Counts interface {
	CountsByQueueAndState(ctx context.Context) ([]jobstore.Count, error)
}

// Events reads the cluster's event log.
type Events interface {
	// Find returns the events that match the filter, newest first.
	Find(ctx context.Context, filter eventstore.Filter) ([]eventstore.Event, error)
	// CheckTypes returns an eventstore.UnknownTypeError for a type that no event has.
	CheckTypes(ctx context.Context, types []string) error
}

// Compaction reads the passes of the log compactor.
type Compaction interface {
	// Status returns at most limit passes, newest first, and the sizes of the tables.
	Status(ctx context.Context, limit int) (compactstore.Status, error)
}

// Source holds what the pages read from. Every field is required.
type Source struct {
	Leadership Leadership
	Nodes      Nodes
	Health     Health
	Crons      Crons
	Explain    Explain
	Jobs       Jobs
	Counts     Counts
	Queues     Queues
	Dead       DeadLetters
	Events     Events
	History    History
	Alerts     Alerts
	Compaction Compaction
}

// Changes notifies of changes in the cluster.
type Changes interface {
	// Subscribe returns a channel that receives after every change, or once after several
	// of them, until cancel is called.
	Subscribe() (changes <-chan struct{}, cancel func())
}

// Self describes the node that serves the pages.
type Self struct {
	Cluster     string
	NodeID      string
	Incarnation string
	Version     string
	APIURL      string
}

// Options are the arguments of New.
type Options struct {
	Cluster ClusterOptions
	Auth    AuthOptions
	API     APIOptions
	Pages   PageOptions
	// NoPages disables the pages and their streams. The JSON documents, the API and the
	// probes remain.
	NoPages bool
}

// ClusterOptions are what the pages and the API read and change. Source, Self, Roles and
// Ready are required; everything else is optional.
type ClusterOptions struct {
	Source Source
	Self   Self
	// Roles are the roles that this cluster elects a leader for, in display order.
	Roles []string
	// Ready returns nil if the node can serve. Each error that it joins names one reason
	// why it cannot. An [UnreadyError] holds details that only callers with a token may
	// read.
	Ready func(ctx context.Context) error
	// CronOps and CronRunner change crons. Unless both are set, crons are read-only.
	CronOps    CronOps
	CronRunner CronRunner
	// JobOps changes jobs. Without it, jobs are read-only.
	JobOps JobOps
	// Enqueuer adds jobs. Without it, no jobs can be added.
	Enqueuer Enqueuer
	// QueueOps pauses queues. Without it, queues are read-only.
	QueueOps QueueOps
	// DeadLetterOps changes dead letters. Without it, dead letters are read-only.
	DeadLetterOps DeadLetterOps
	// RoleOps hands roles over and drains nodes. Without it, neither is possible.
	RoleOps RoleOps
	// Silencer silences and tests alerts. Without it, neither is possible.
	Silencer Silencer
	// Settings returns the node's effective configuration as a tree, with secrets redacted.
	// Without it, there is no settings page.
	Settings func() map[string]any
	Logger   *slog.Logger
	Now      func() time.Time
	// Lifetime is the context of the node. It ends background reads that no request waits
	// for. It is optional.
	Lifetime context.Context //nolint:containedctx // passed to work that outlives a request
	// CountTimeout is how long a page waits for the count of all jobs. 0 selects a default.
	CountTimeout time.Duration
}

// AuthOptions say who may send requests, and how many.
type AuthOptions struct {
	// Tokens authenticates callers. Without it, everybody may do everything.
	Tokens Tokens
	// Audit records actions in the audit log. Without it, no action is recorded.
	Audit Audit
	// AllowedHosts are the host names that the listener answers to, without port. Empty
	// allows every name. A listener on loopback needs LoopbackHosts, or any web site could
	// read it by rebinding its own name.
	AllowedHosts []string
	// TrustedProxies are the address ranges of proxies whose X-Forwarded-For names the
	// client.
	TrustedProxies []netip.Prefix
	// Concurrent is how many requests are handled at the same time. 0 selects a default.
	Concurrent int
	// Beyond reports, from a request's context, whether its connection exceeds the
	// listener's limit. On such a connection only probes are answered. It is optional.
	Beyond func(ctx context.Context) bool
}

// APIOptions are what only the API and the probes need. Leads is required.
type APIOptions struct {
	// Leads reports from memory whether this node leads a role.
	Leads func(role string) (leaderstore.Fence, bool)
	// File is the node's configuration file. Without it, there are no plan and apply
	// routes.
	File File
	// Doctor checks the database, the connection to it and the cluster. It is optional.
	Doctor func(ctx context.Context) ([]Finding, error)
	// TokenKeeper creates and revokes tokens. Without it, only the commands do.
	TokenKeeper TokenKeeper
	// Once makes a repeated request with the same idempotency key take effect once. Without
	// it, keys are ignored.
	Once IdempotencyStore
	// Metrics serves /metrics.
	Metrics http.Handler
	// ClusterMetrics reads the cluster's metrics and returns a handler that serves them.
	ClusterMetrics func(ctx context.Context) (http.Handler, error)
}

// PageOptions are what only the pages need. They are optional.
type PageOptions struct {
	// Applied returns the hash of the configuration in force. Without it, the configuration
	// that most nodes run counts.
	Applied func(ctx context.Context) (string, error)
	// Differs summarizes what another configuration changes compared with the one in force.
	// Both arguments are hashes.
	Differs func(ctx context.Context, applied, other string) (string, error)
	Changes Changes
}

// AnyAddress in AllowedHosts stands for every IP address. Allowing them is safe: a web site
// can rebind its own name to another address, but browsers send that name as the host, not
// the address.
const AnyAddress = "*address*"

// LoopbackHosts are the host names of a listener on loopback.
func LoopbackHosts() []string { return []string{"localhost", "127.0.0.1", "::1"} }

// clusterState is what the pages and the API read and change.
type clusterState struct {
	ClusterOptions

	counts    *staleCache[[]jobstore.Count]
	dead      *cache[[]jobstore.DeadGroup]
	outlines  *cache[outline]
	ticks     *tickCache
	rates     *cache[rollupstore.Rates]
	readiness *recent[error]
}

func newClusterState(opts ClusterOptions) *clusterState {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &clusterState{ClusterOptions: opts}
	s.counts = s.newCounts()
	s.dead = newCache(2*time.Second, s.allDead)
	s.ticks = newTickCache(opts.Source.Crons, opts.Source.Jobs)
	s.outlines = newCache(keepOutline, s.outline)
	s.rates = newCache(keepRates, opts.Source.Leadership.Rates)
	s.readiness = newRecent(opts.Ready)
	return s
}

// guard checks and limits requests.
type guard struct {
	*responder
	AuthOptions

	now      func() time.Time
	lifetime context.Context //nolint:containedctx // the context of the node, not of a call
	auth     *auth
	// refusals limits how many refusals are recorded.
	refusals *refusals
	limits   limits
}

func newGuard(opts AuthOptions, answers *responder, now func() time.Time, lifetime context.Context) *guard { //nolint:revive // the context of the node, not of a call
	return &guard{
		responder: answers, AuthOptions: opts, now: now, lifetime: lifetime,
		auth: newAuth(opts.Tokens, now), refusals: newRefusals(), limits: newLimits(opts.Concurrent),
	}
}

// apiServer serves the API and the probes.
type apiServer struct {
	*guard
	*clusterState
	APIOptions

	lead *cache[[]leaderstore.Leader]
	// findings caches the results of Doctor.
	findings *cache[[]Finding]
	// document returns the OpenAPI document, documentText the document as JSON.
	document     func() (apiDocument, error)
	documentText func() ([]byte, error)
}

func newAPIServer(opts APIOptions, g *guard, c *clusterState) *apiServer {
	s := &apiServer{
		guard: g, clusterState: c, APIOptions: opts,
		lead:     newCache(100*time.Millisecond, c.Source.Leadership.Leaders),
		findings: newCache(time.Second, opts.Doctor),
	}
	s.document, s.documentText = s.describeOnce()
	return s
}

// pageServer serves the pages and their streams.
type pageServer struct {
	*guard
	*clusterState
	PageOptions

	assets     *assets
	renderer   *renderer
	feeds      *feeds
	stored     *cache[compactstore.Status]
	chartPages map[string]*chartPage
	firing     *cache[[]alerts.Status]
	hazards    *cache[[]hazards.Hazard]
	// docs returns the body of the page that shows the OpenAPI document.
	docs func() (docsBody, error)
}

func newPageServer(opts PageOptions, g *guard, c *clusterState, document func() (apiDocument, error)) *pageServer {
	s := &pageServer{
		guard: g, clusterState: c, PageOptions: opts,
		assets: loadAssets(), chartPages: newChartPages(),
		firing:  newCache(time.Second, c.Source.Alerts.List),
		hazards: newCache(keepHazards, c.Source.Health.Hazards),
		docs: sync.OnceValues(func() (docsBody, error) {
			doc, err := document()
			return newDocsBody(doc), err
		}),
	}
	s.renderer = newRenderer(s.assets)
	s.feeds = newFeeds(s.subscribe)
	s.stored = newCache(keepSizes, s.storage)
	return s
}

func (s *pageServer) subscribe() (<-chan struct{}, func()) {
	if s.Changes == nil {
		return nil, func() {}
	}
	return s.Changes.Subscribe()
}

// server holds the rooms of the dashboard.
type server struct {
	guard   *guard
	cluster *clusterState
	api     *apiServer
	pages   *pageServer
	noPages bool
}

// Handler answers the requests of a node's listener.
type Handler struct {
	http.Handler
	server *server
}

// New returns the handler of a node's listener.
func New(opts Options) *Handler {
	s := makeServer(opts)
	return &Handler{s.guard.guard(s.guard.mux(s.routes())), s}
}

// Run records how many refusals the audit log omits, until ctx ends. ctx must be the
// Lifetime. After Run returns, no background read is in progress.
func (h *Handler) Run(ctx context.Context) {
	h.server.guard.recordSums(ctx)
	h.server.cluster.counts.wait()
}

func makeServer(opts Options) *server {
	s := &server{cluster: newClusterState(opts.Cluster), noPages: opts.NoPages}
	answers := &responder{logger: s.cluster.Logger}
	s.guard = newGuard(opts.Auth, answers, s.cluster.Now, s.cluster.Lifetime)
	s.api = newAPIServer(opts.API, s.guard, s.cluster)
	s.pages = newPageServer(opts.Pages, s.guard, s.cluster, s.api.document)
	if !opts.NoPages {
		answers.errorPage = s.pages.writeErrorPage
	}
	return s
}
