package dashboard

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/forge-scheduler/forge/internal/alertstore"
	"github.com/forge-scheduler/forge/internal/compactstore"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/outbox"
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
	// HistoryAfter returns those that follow a place.
	HistoryAfter(ctx context.Context, role string, after leaderstore.Place, limit int) ([]leaderstore.Tenure, error)
}

// Nodes reads the members of the cluster.
type Nodes interface {
	List(ctx context.Context) ([]nodestore.Node, error)
}

// Health reads what the events tell of the cluster's health.
type Health interface {
	// Causes are why the cluster is degraded; none: it is healthy.
	Causes(ctx context.Context) ([]string, error)
	// Hazards are what stops work although nodes and roles are up.
	Hazards(ctx context.Context) ([]hazards.Hazard, error)
}

// Crons reads the crons in force and their ledger.
type Crons interface {
	List(ctx context.Context) ([]cronstore.Cron, error)
	// Outline returns the crons in force by name, without most of them, and takes
	// what it returned last; Some returns the whole of a few.
	Outline(ctx context.Context, before []cronstore.Outlined) ([]cronstore.Outlined, error)
	Some(ctx context.Context, names []string) ([]cronstore.Cron, error)
	// Page returns the first of those that are wanted, by name.
	Page(ctx context.Context, n cronstore.Narrow) ([]cronstore.Cron, error)
	// Get returns one cron, also if it was removed, or cronstore.ErrNotFound.
	Get(ctx context.Context, name string) (cronstore.Cron, error)
	// Ticks returns at most limit ticks of a cron that fell due before an
	// instant (zero: the newest), newest first.
	Ticks(ctx context.Context, cron string, before time.Time, limit int) ([]cronstore.Tick, error)
	// NewestTicks returns the newest ticks of each of these crons, at most limit of
	// each, newest first.
	NewestTicks(ctx context.Context, crons []string, limit int) (map[string][]cronstore.Tick, error)
	// Why says what became of a tick; cronstore.ErrNotFound: of no such cron.
	Why(ctx context.Context, cron string, tick time.Time) (explain.Explanation, error)
	// Told returns who was told, or is to be, of failed runs of these ticks.
	Told(ctx context.Context, cron string, ticks []time.Time) ([]outbox.Notification, error)
}

// Jobs reads jobs and their output.
type Jobs interface {
	// List returns jobs by descending id.
	List(ctx context.Context, filter jobstore.Filter) ([]jobstore.Job, error)
	// Get returns jobstore.ErrNotFound when there is no such job.
	Get(ctx context.Context, id int64) (jobstore.Job, error)
	// States returns the states of those of these jobs that are still there.
	States(ctx context.Context, ids []int64) (map[int64]string, error)
	// Logs returns the chunks of an attempt's output that follow afterSeq, as
	// many as one reading gives; none means that there are no more.
	Logs(ctx context.Context, id int64, attempt, afterSeq int) ([]jobstore.LogChunk, error)
	// Placement says where a job goes, why it waits, or who ran it.
	Placement(ctx context.Context, id int64) (explain.Placement, error)
}

// Counts reads how many jobs are in each state.
type Counts interface {
	CountsByQueueAndState(ctx context.Context) ([]jobstore.Count, error)
}

// Events reads the cluster's diary.
type Events interface {
	// Find returns the events that the filter chooses, newest first.
	Find(ctx context.Context, filter eventstore.Filter) ([]eventstore.Event, error)
	// CheckTypes returns an eventstore.UnknownTypeError for a type that nothing has.
	CheckTypes(ctx context.Context, types []string) error
}

// Compaction reads what the log compactor did.
type Compaction interface {
	// Status returns at most limit passes, newest first, and how large tables are.
	Status(ctx context.Context, limit int) (compactstore.Status, error)
}

// Source is where the pages read. Every field is needed.
type Source struct {
	Leadership Leadership
	Nodes      Nodes
	Health     Health
	Crons      Crons
	Jobs       Jobs
	Counts     Counts
	Queues     Queues
	Dead       Dead
	Events     Events
	History    History
	Alerts     Alerts
	Compaction Compaction
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

// Options are what New needs: Source, Self, Roles, Ready and Leads. All else may be
// left out.
type Options struct {
	Source Source
	Self   Self
	// Holder and Runner do what is asked of crons; without both, nothing can be.
	Holder Holder
	Runner Runner
	// Changer does what is asked of jobs; without it, nothing can be.
	Changer Changer
	// Enqueuer adds jobs; without it, nobody can.
	Enqueuer Enqueuer
	// Stopper pauses queues; without it, nobody can.
	Stopper Stopper
	// DeadChanger does what is asked of dead letters; without it, nothing can be.
	DeadChanger DeadChanger
	// Tokens say who asks. Without them everybody may do everything.
	Tokens Tokens
	// Audit writes down what is asked for. Without it nothing is.
	Audit Audit
	// File is the node's own; without it nobody can plan or apply.
	File File
	// Doctor examines the database, the way to it and the cluster; may be left out.
	Doctor func(ctx context.Context) ([]Finding, error)
	// TokenKeeper makes tokens and ends them; without it only the commands do.
	TokenKeeper TokenKeeper
	// Once lets a repeat of a request with a key do nothing. Without it keys are not
	// heeded.
	Once Once
	// Mover hands roles over and drains nodes; without it, nobody can.
	Mover Mover
	// Silencer silences alerts and tries them; without it, nobody can.
	Silencer Silencer
	// Settings is the node's effective configuration as a tree, secrets redacted;
	// without it, there is no page of it.
	Settings func() map[string]any
	// Roles are the roles that this cluster elects a leader for, in the order
	// in which they are shown.
	Roles []string
	// Ready returns nil when the node can serve. Each error that it joins
	// names one thing that is not ready. What only callers with a token may read of
	// one is in an [UnreadyError].
	Ready func(ctx context.Context) error
	// Leads answers from memory whether this node leads a role.
	Leads func(role string) (leaderstore.Fence, bool)
	// Describe puts a cron's schedule into plain English; empty means that it
	// cannot.
	Describe func(cron cronstore.Cron) string
	// Applied returns the hash of the configuration in force. Without it the
	// one that most nodes run counts.
	Applied func(ctx context.Context) (string, error)
	// Differs says in a few words what another configuration would change
	// against the one in force; both are hashes. May be left out.
	Differs func(ctx context.Context, applied, other string) (string, error)
	// Metrics serves /metrics.
	Metrics http.Handler
	// ClusterMetrics reads the cluster's metrics and returns what serves them.
	ClusterMetrics func(ctx context.Context) (http.Handler, error)
	Changes        Changes
	// AllowedHosts are the names under which the listener may be addressed,
	// without port. Empty allows every name; a listener on loopback wants
	// LoopbackHosts, or any web site could read it by rebinding its name.
	AllowedHosts []string
	// TrustedProxies are ranges of proxies whose X-Forwarded-For names the client.
	TrustedProxies []netip.Prefix
	// NoPages leaves out the pages and their streams, and keeps the documents,
	// the API and the probes.
	NoPages bool
	// Concurrent is how many requests are handled at the same time; 0: a few.
	Concurrent int
	// Beyond says, by a request's context, that it came over a connection beyond those
	// that the listener allows: only probes are answered then. May be left out.
	Beyond func(ctx context.Context) bool
	Logger *slog.Logger
	Now    func() time.Time
	// Lifetime is the node's: what is read that nobody waits for ends with it. May be
	// left out.
	Lifetime context.Context //nolint:containedctx // handed on to what outlives a request
	// patience is for how long a page waits for the count of all jobs.
	patience time.Duration
}

// AnyAddress stands among AllowedHosts for every IP address: a web site can give a
// name of its own another address, but not the address another name.
const AnyAddress = "*address*"

// LoopbackHosts are the names of a listener on loopback.
func LoopbackHosts() []string { return []string{"localhost", "127.0.0.1", "::1"} }

type server struct {
	Options
	assets   *assets
	renderer *renderer
	feeds    *feeds
	counts   *latest[[]jobstore.Count]
	outlines *memo[outline]
	dead     *memo[[]jobstore.DeadGroup]
	stored   *memo[compactstore.Status]
	sheets   map[string]*sheet
	ticks    *tickCache
	lead     *memo[[]leaderstore.Leader]
	firing   *memo[[]alertstore.Status]
	hazards  *memo[[]hazards.Hazard]
	// findings are the doctor's.
	findings *memo[[]Finding]
	door     *door
	// refusals bounds those that are recorded.
	refusals *refusals
	// described is the API's document.
	described func() (description, error)
	limits    limits
	readiness *recent[error]
}

// Handler answers a node's listener.
type Handler struct {
	http.Handler
	server *server
}

// New returns the handler of a node's listener.
func New(opts Options) *Handler {
	s := makeServer(opts)
	return &Handler{s.guard(s.mux()), s}
}

// Run records how many refusals the audit log leaves out, until ctx ends, which is to
// be the Lifetime. When it returns nothing is read that no request waits for.
func (h *Handler) Run(ctx context.Context) {
	h.server.recordSums(ctx)
	h.server.counts.wait()
}

func makeServer(opts Options) *server {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &server{Options: opts, assets: loadAssets(), ticks: newTickCache(opts.Source.Crons, opts.Source.Jobs)}
	s.renderer = newRenderer(s.assets)
	s.feeds = newFeeds(s.subscribe)
	s.counts = s.newCounts()
	s.dead = newMemo(2*time.Second, s.allDead)
	s.stored, s.sheets = newMemo(keepSizes, s.storage), newSheets()
	s.outlines = newMemo(keepOutline, s.outline)
	s.firing = newMemo(time.Second, opts.Source.Alerts.List)
	s.hazards = newMemo(keepHazards, opts.Source.Health.Hazards)
	s.findings = newMemo(time.Second, opts.Doctor)
	s.lead = newMemo(100*time.Millisecond, opts.Source.Leadership.Leaders)
	s.door, s.refusals = newDoor(opts.Tokens, opts.Now), newRefusals()
	s.described = s.describeOnce()
	s.limits = newLimits(opts.Concurrent)
	s.readiness = newRecent(opts.Ready)
	return s
}

func (s *server) subscribe() (<-chan struct{}, func()) {
	if s.Changes == nil {
		return nil, func() {}
	}
	return s.Changes.Subscribe()
}
