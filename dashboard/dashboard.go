package dashboard

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// SchedulerRole is the role whose leader counts as the cluster's leader in the
// documents under /cluster.
const SchedulerRole = "scheduler"

// Leadership reads who leads and who led.
type Leadership interface {
	// Leaders returns every role, vacant ones too.
	Leaders(ctx context.Context) ([]leaderstore.Leader, error)
	// History returns at most limit tenures of a role, or of all roles when
	// role is empty, newest first.
	History(ctx context.Context, role string, limit int) ([]leaderstore.Tenure, error)
}

// Nodes reads the members of the cluster.
type Nodes interface {
	List(ctx context.Context) ([]nodestore.Node, error)
}

// Crons reads the crons in force and their ledger.
type Crons interface {
	List(ctx context.Context) ([]cronstore.Cron, error)
	// Ticks returns at most limit ticks of a cron that fell due before an
	// instant (zero: the newest), newest first.
	Ticks(ctx context.Context, cron string, before time.Time, limit int) ([]cronstore.Tick, error)
}

// Jobs reads jobs and their output.
type Jobs interface {
	// List returns jobs by descending id.
	List(ctx context.Context, filter jobstore.Filter) ([]jobstore.Job, error)
	// Get returns jobstore.ErrNotFound when there is no such job.
	Get(ctx context.Context, id int64) (jobstore.Job, error)
	// Logs returns the chunks of an attempt's output that follow afterSeq, as
	// many as one reading gives; none means that there are no more.
	Logs(ctx context.Context, id int64, attempt, afterSeq int) ([]jobstore.LogChunk, error)
}

// Counts reads how many jobs are in each state.
type Counts interface {
	CountsByQueueAndState(ctx context.Context) ([]jobstore.Count, error)
}

// Events reads the cluster's diary.
type Events interface {
	// List returns at most limit events older than the id before (0: the
	// newest), newest first.
	List(ctx context.Context, before int64, limit int) ([]eventstore.Event, error)
}

// Source is where the pages read. Every field is needed.
type Source struct {
	Leadership Leadership
	Nodes      Nodes
	Crons      Crons
	Jobs       Jobs
	Counts     Counts
	Events     Events
}

// Changes tells that something in the cluster changed.
type Changes interface {
	// Subscribe returns a channel that receives after every change, or after
	// many of them, until cancel is called.
	Subscribe() (changes <-chan struct{}, cancel func())
}

// Self is the node that serves the pages.
type Self struct {
	Cluster     string
	NodeID      string
	Incarnation string
	Version     string
	APIURL      string
}

// Options are what New needs. Describe, Applied, Metrics, ClusterMetrics,
// AllowedHosts, NoPages, Changes, Logger and Now may be left out.
type Options struct {
	Source Source
	Self   Self
	// Roles are the roles that this cluster elects a leader for, in the order
	// in which they are shown.
	Roles []string
	// Ready returns nil when the node can serve. Each error that it joins
	// names one thing that is not ready.
	Ready func(ctx context.Context) error
	// Leads answers from memory whether this node leads a role.
	Leads func(role string) (leaderstore.Fence, bool)
	// Describe puts a cron's schedule into plain English; empty means that it
	// cannot.
	Describe func(cron cronstore.Cron) string
	// Applied returns the hash of the configuration in force. Without it the
	// one that most nodes run counts.
	Applied func(ctx context.Context) (string, error)
	// Metrics serves /metrics, ClusterMetrics /metrics/cluster.
	Metrics, ClusterMetrics http.Handler
	Changes                 Changes
	// AllowedHosts are the names under which the listener may be addressed,
	// without port. Empty allows every name; a listener on loopback wants
	// LoopbackHosts, or any web site could read it by rebinding its name.
	AllowedHosts []string
	// NoPages leaves out the pages and their streams, and keeps the documents,
	// the API and the probes.
	NoPages bool
	Logger  *slog.Logger
	Now     func() time.Time
}

// LoopbackHosts are the names of a listener on loopback.
func LoopbackHosts() []string { return []string{"localhost", "127.0.0.1", "::1"} }

type server struct {
	Options
	assets *assets
	pages  *renderer
	feeds  *feeds
	counts *memo[[]jobstore.Count]
	ticks  *tickCache
	lead   *memo[[]leaderstore.Leader]
}

// New returns the handler of a node's listener.
func New(opts Options) http.Handler {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &server{Options: opts, assets: loadAssets(), ticks: newTickCache(opts.Source.Crons)}
	s.pages = newRenderer(s.assets)
	s.feeds = newFeeds(s.subscribe)
	s.counts = newMemo(2*time.Second, opts.Source.Counts.CountsByQueueAndState)
	s.lead = newMemo(100*time.Millisecond, opts.Source.Leadership.Leaders)
	return s.guard(s.mux())
}

type route struct {
	path    string
	handler http.HandlerFunc
}

// routes is every path that the node answers; the tests walk it.
func (s *server) routes() []route {
	routes := []route{
		{"/healthz", s.healthz},
		{"/readyz", s.readyz},
		{"/leader/{role}", s.leaderProbe},
		{"/cluster/status", s.clusterStatus},
		{"/cluster/leader", s.clusterLeader},
		{"/cluster/health", s.clusterHealth},

		{"/api/v1/leaders", s.apiLeaders},
		{"/api/v1/leaders/history", s.apiHistory},
		{"/api/v1/nodes", s.apiNodes},
		{"/api/v1/crons", s.apiCrons},
		{"/api/v1/crons/{name}/ticks", s.apiTicks},
		{"/api/v1/jobs", s.apiJobs},
		{"/api/v1/jobs/{id}", s.apiJob},
		{"/api/v1/jobs/{id}/logs", s.apiLogs},
		{"/api/v1/events", s.apiEvents},
	}
	if s.Metrics != nil {
		routes = append(routes, route{"/metrics", s.Metrics.ServeHTTP})
	}
	if s.ClusterMetrics != nil {
		routes = append(routes, route{"/metrics/cluster", s.ClusterMetrics.ServeHTTP})
	}
	if !s.NoPages {
		routes = append(routes, s.pageRoutes()...)
	}
	return routes
}

func (s *server) pageRoutes() []route {
	return []route{
		{"/{$}", s.page("overview")},
		{"/leaders", s.page("leaders")},
		{"/crons", s.page("crons")},
		{"/crons/{name}", s.page("cron")},
		{"/jobs", s.page("jobs")},
		{"/jobs/{id}", s.page("job")},
		{"/events", s.events},
		{"/static/{file}", s.assets.ServeHTTP},
	}
}

func (s *server) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		mux.HandleFunc("GET "+r.path, r.handler) // and HEAD
		mux.HandleFunc(r.path, s.methodNotAllowed)
	}
	mux.HandleFunc("/", s.notFound)
	return mux
}

func (s *server) subscribe() (<-chan struct{}, func()) {
	if s.Changes == nil {
		return nil, func() {}
	}
	return s.Changes.Subscribe()
}
