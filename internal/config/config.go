// Package config reads forge.toml: strictly, and with every error of the file
// at once.
package config

// Config is the whole file. Names of keys are in the struct tags; defaults are
// in Default, and in Complete for the sections that a file may repeat.
//
// The other tags are rules for a value that is written down: min and max bound
// a number or a duration, oneof lists the words of a string, kind names the kind
// of job that a key belongs to, refs lets a string hold ${env:NAME} and
// ${file:PATH}, and live marks what a running node takes over from an edited
// file: everything else needs a restart.
type Config struct {
	// Include names files under the directory of this one whose crons and jobs belong to
	// it, as patterns.
	Include      []string          `toml:"include,omitempty" live:"yes"`
	Database     Database          `toml:"database"`
	Node         Node              `toml:"node"`
	Cluster      Cluster           `toml:"cluster"`
	Scheduler    Scheduler         `toml:"scheduler"`
	CronDefaults CronPolicy        `toml:"cron_defaults" live:"yes"`
	Queues       map[string]Queue  `toml:"queues,omitempty" live:"yes"`
	Jobs         map[string]Job    `toml:"jobs,omitempty" live:"yes"`
	Crons        []Cron            `toml:"crons,omitempty" live:"yes"`
	Alerts       []Alert           `toml:"alerts,omitempty" live:"yes"`
	Notify       map[string]Notify `toml:"notify,omitempty" live:"yes"`
	HTTP         HTTP              `toml:"http"`
	Dashboard    Dashboard         `toml:"dashboard"`
	Metrics      Metrics           `toml:"metrics"`
	Retention    Retention         `toml:"retention" live:"yes"`

	secrets secrets
}

// Database says how PostgreSQL is reached.
type Database struct {
	URL string `toml:"url,omitempty" refs:"yes"`
	// LeaderURL is the address of the election's session: direct or in session
	// mode, unless the strategy is lease.
	// Default: URL.
	LeaderURL string `toml:"leader_url,omitempty" refs:"yes"`
	// PoolSize is the most connections of the node's pool.
	PoolSize int    `toml:"pool_size" min:"1" max:"10000"`
	Schema   string `toml:"schema"`
}

// Node is what this process brings to the cluster.
type Node struct {
	// ID names the node in the cluster; default: the host's name.
	ID                 string            `toml:"id,omitempty"`
	Roles              []string          `toml:"roles"`
	WorkerCapabilities []string          `toml:"worker_capabilities" live:"yes"`
	Tags               map[string]string `toml:"tags,omitempty" live:"yes"`
	// Slots is the most jobs that the node runs at once.
	Slots        int      `toml:"slots" min:"1" max:"10000" live:"yes"`
	DrainTimeout Duration `toml:"drain_timeout" min:"100ms" max:"1d"`
	// AllowedCommands bound what shell jobs run here.
	AllowedCommands AllowedCommands `toml:"allowed_commands,omitempty"`
	// APIURL is where other people reach this node; default: the listener's
	// own address.
	APIURL string `toml:"api_url,omitempty"`
}

// Cluster holds what all nodes share about each other.
type Cluster struct {
	Name              string   `toml:"name"`
	HeartbeatInterval Duration `toml:"heartbeat_interval" min:"100ms" max:"1h"`
	DeadThreshold     Duration `toml:"dead_threshold" min:"200ms" max:"1d"`
	// LockNamespace moves every advisory lock id, for a database that another
	// application shares. -1: by a number that is made from the schema.
	LockNamespace  int            `toml:"lock_namespace" min:"-1" max:"127"`
	LeaderElection LeaderElection `toml:"leader_election"`
}

// LeaderElection times the elections.
type LeaderElection struct {
	CheckInterval    Duration                 `toml:"check_interval" min:"100ms" max:"1d"`
	LeaseDuration    Duration                 `toml:"lease_duration" min:"500ms" max:"1d"`
	RefreshInterval  Duration                 `toml:"refresh_interval" min:"100ms" max:"1d"`
	LockTimeout      Duration                 `toml:"lock_timeout" min:"1ms" max:"1d"`
	Strategy         string                   `toml:"strategy" oneof:"advisory|lease|kubernetes"`
	HistoryRetention Duration                 `toml:"history_retention" min:"1h" max:"3650d"`
	LeaderFile       string                   `toml:"leader_file"`
	Roles            map[string]RoleOverrides `toml:"roles,omitempty"`
}

// ByLease says that leaders are elected by their rows alone, for a database that
// is reached through a pooler in transaction mode.
func (e LeaderElection) ByLease() bool { return e.Strategy == "lease" }

// ByKubernetes says that a node needs a role's Lease object in Kubernetes to lead the role.
func (e LeaderElection) ByKubernetes() bool { return e.Strategy == "kubernetes" }

// RoleOverrides change one role's election.
type RoleOverrides struct {
	// LockID is any number but 0, which stands for none. Where there is a namespace it
	// has at most 56 bits: the namespace stands above them.
	LockID int64 `toml:"lock_id,omitzero"`
	// TakeoverDelay is how long the work of a new leader waits, unless its
	// predecessor went in order; by default 0 for the built-in roles, whose
	// writes are fenced, and a lease for all others.
	TakeoverDelay Duration `toml:"takeover_delay" min:"0s" max:"1d"`
}

// Scheduler is how the scheduler's leader works.
type Scheduler struct {
	Timezone   string `toml:"timezone" live:"yes"`
	Assignment string `toml:"assignment" oneof:"least_loaded|round_robin|spread"`
}

// CronPolicy is what happens to ticks that cannot simply fire. In
// [cron_defaults] it is the default of every cron; in [[crons]] empty means the
// default.
type CronPolicy struct {
	Timezone      string   `toml:"timezone,omitempty"`
	Overlap       string   `toml:"overlap,omitempty" oneof:"skip|allow|queue|queue_all|replace|replace_waiting"`
	CatchUp       CatchUp  `toml:"catch_up,omitempty" oneof:"none|latest|all"`
	CatchUpWindow Duration `toml:"catch_up_window,omitzero" min:"10s" max:"31d"`
	CatchUpLimit  int      `toml:"catch_up_limit,omitzero" min:"1" max:"1000000"`
	DSTMissing    string   `toml:"dst_missing,omitempty" oneof:"run-after|shift|skip"`
	DSTRepeated   string   `toml:"dst_repeated,omitempty" oneof:"first|last|both"`
	// Jitter is the bound of the delay of each tick; 0 is none.
	Jitter Duration `toml:"jitter,omitzero" min:"1ms" max:"31d"`
}

// CatchUp is "none", "latest" or "all"; in TOML also true (all) and false
// (none).
type CatchUp string

// Queue limits one queue.
type Queue struct {
	// MaxWorkers is the most jobs of the queue that one node runs at once; 0 is
	// as many as the node has slots.
	MaxWorkers int `toml:"max_workers,omitzero" min:"1" max:"10000"`
	// Reserve is how many slots of each node only jobs of the queue may use; 0 is none.
	Reserve int `toml:"reserve,omitzero" min:"1" max:"10000"`
	// GlobalLimit is the most jobs of the queue that the whole cluster runs at
	// once; 0 is no limit.
	GlobalLimit int `toml:"global_limit,omitzero" min:"1" max:"10000"`
	// LimitPerKey limits the jobs of the queue with the same value of a key.
	LimitPerKey LimitPerKey `toml:"limit_per_key,omitempty"`
	// MaxWorkersPerKey limits the jobs of the queue with the same value of a key on each node.
	MaxWorkersPerKey LimitPerKey `toml:"max_workers_per_key,omitempty"`
	// RateLimit limits how many jobs of the queue start in a window.
	RateLimit RateLimit `toml:"rate_limit,omitempty"`
	// FairBy is a key, as package limitkey reads it: the waiting jobs take turns by its value.
	FairBy string `toml:"fair_by,omitempty"`
	// FairWeights are how many jobs of a value each turn has; 1 for other values.
	FairWeights map[string]int `toml:"fair_weights,omitempty" min:"1" max:"100"`
	// Priority is the default of the queue's jobs, 1 (first) to 4.
	Priority int `toml:"priority,omitzero" min:"1" max:"4"`
}

// Job is a job without code, a command, a request or a statement; or, of kind go,
// what the cluster is to know of a kind that a Go program has a worker for.
type Job struct {
	Kind string `toml:"kind,omitempty" oneof:"shell|http|sql|go"`
	// Schema is what the args must be, for whoever enqueues the job.
	Schema   Schema `toml:"schema,omitempty"`
	Queue    string `toml:"queue,omitempty"`
	Priority int    `toml:"priority,omitzero" min:"1" max:"4"`
	// GlobalLimit is the most of these jobs that the whole cluster runs at once;
	// 0 is no limit.
	GlobalLimit int `toml:"global_limit,omitzero" min:"1" max:"10000"`
	// LimitPerKey limits the jobs of this kind with the same value of a key, in all queues.
	LimitPerKey LimitPerKey `toml:"limit_per_key,omitempty"`
	// MaxWorkersPerKey limits the jobs of this kind with the same value of a key on each node.
	MaxWorkersPerKey LimitPerKey `toml:"max_workers_per_key,omitempty"`
	// RateLimit limits how many jobs of this kind start in a window, in all queues.
	RateLimit RateLimit `toml:"rate_limit,omitempty"`
	// Weight is how many units of a rate a job needs; 0: one.
	Weight     int               `toml:"weight,omitzero" min:"1" max:"1000000"`
	Timeout    Duration          `toml:"timeout,omitzero" min:"100ms" max:"30d"`
	Retry      Retry             `toml:"retry,omitempty"`
	Unique     Unique            `toml:"unique,omitempty"`
	Capability string            `toml:"capability,omitempty"`
	Tags       map[string]string `toml:"tags,omitempty"`
	Output     Output            `toml:"output,omitempty"`

	// Shell.
	Command []string          `toml:"command,omitempty" kind:"shell"`
	Env     map[string]string `toml:"env,omitempty" kind:"shell" refs:"yes"`
	Cwd     string            `toml:"cwd,omitempty" kind:"shell"`
	User    string            `toml:"user,omitempty" kind:"shell"`
	// ExitCodes are the exit codes that neither succeed nor fail.
	ExitCodes ExitCodes `toml:"exit_codes,omitempty" kind:"shell"`

	// HTTP.
	Method       string            `toml:"method,omitempty" kind:"http"`
	URL          string            `toml:"url,omitempty" kind:"http" refs:"yes"`
	Headers      map[string]string `toml:"headers,omitempty" kind:"http" refs:"yes"`
	Body         string            `toml:"body,omitempty" kind:"http" refs:"yes"`
	ExpectStatus []int             `toml:"expect_status,omitempty" kind:"http" min:"100" max:"599"`

	// SQL.
	Statement        string   `toml:"statement,omitempty" kind:"sql"`
	Database         string   `toml:"database,omitempty" kind:"sql" refs:"yes"`
	StatementTimeout Duration `toml:"statement_timeout,omitzero" kind:"sql" min:"1ms" max:"30d"`

	secrets []string // what its references became
}

// Kinds of jobs: those without code, and one that a Go program has a worker for.
const (
	KindShell = "shell"
	KindHTTP  = "http"
	KindSQL   = "sql"
	KindGo    = "go"
)

// Retry is what follows a failed attempt: backoff doubles from Backoff up to
// MaxBackoff. SecondRound is how long after the last one as many are tried again,
// once; 0: never.
type Retry struct {
	MaxAttempts int      `toml:"max_attempts,omitzero" min:"1" max:"1000"`
	Backoff     Duration `toml:"backoff,omitzero" min:"100ms" max:"30d"`
	MaxBackoff  Duration `toml:"max_backoff,omitzero" min:"100ms" max:"30d"`
	SecondRound Duration `toml:"second_round,omitzero" min:"1s" max:"30d"`
}

// ExitCodes are exit codes of a command with a meaning; 0: none. Shells and runtimes give 1,
// 2 and those from 126 on.
type ExitCodes struct {
	// Snooze runs the job again later, Cancel cancels it, Discard gives it up.
	Snooze  int `toml:"snooze,omitzero" min:"3" max:"125"`
	Cancel  int `toml:"cancel,omitzero" min:"3" max:"125"`
	Discard int `toml:"discard,omitzero" min:"3" max:"125"`
}

// Output bounds what is kept of a job's output.
type Output struct {
	// Capture is the most bytes kept of one attempt.
	Capture int `toml:"capture,omitzero" min:"1" max:"16777216"`
	// Retention is how long what this job writes is kept.
	// Default: as long as retention.logs says.
	Retention Duration `toml:"retention,omitzero" min:"1m" max:"3650d"`
}

// Cron fires a job on a schedule. Instead of Job it may hold a command, a URL
// or a statement of its own.
type Cron struct {
	Name     string         `toml:"name"`
	Schedule string         `toml:"schedule"`
	Job      string         `toml:"job,omitempty"`
	Args     map[string]any `toml:"args,omitempty"`
	Paused   bool           `toml:"paused,omitempty"`
	// Description, Owner and Runbook are for people. Notifications have the last two.
	Description string `toml:"description,omitempty"`
	Owner       string `toml:"owner,omitempty"`
	Runbook     string `toml:"runbook,omitempty"`
	// StartAt is the first instant at which the cron may be due, EndAt the first
	// at which it may not any more.
	StartAt Instant `toml:"start_at,omitempty"`
	EndAt   Instant `toml:"end_at,omitempty"`
	// Exclude holds dates and expressions of ticks that are skipped.
	Exclude []string `toml:"exclude,omitempty"`
	// OnFailure is who is told when a run has failed for good.
	OnFailure OnFailure `toml:"on_failure,omitempty"`
	CronPolicy

	// The short forms; Load turns each into a Job named like the cron.
	Command []string `toml:"command,omitempty"`
	URL     string   `toml:"url,omitempty" refs:"yes"`
	SQL     string   `toml:"sql,omitempty"`
}

// Alert is a condition on the cluster's metrics, in PromQL.
type Alert struct {
	Name      string   `toml:"name" json:"name"`
	Condition string   `toml:"condition" json:"condition"`
	For       Duration `toml:"for,omitzero" json:"for,omitzero" min:"0s" max:"366d"`
	// KeepFiringFor is how long the alert fires on after its condition has ceased to hold.
	KeepFiringFor Duration          `toml:"keep_firing_for,omitzero" json:"keep_firing_for,omitzero" min:"0s" max:"366d"`
	Severity      string            `toml:"severity,omitempty" json:"severity,omitempty" oneof:"info|warning|error|critical"`
	Notify        []string          `toml:"notify,omitempty" json:"notify,omitempty"`
	Labels        map[string]string `toml:"labels,omitempty" json:"labels,omitempty"`
	Annotations   map[string]string `toml:"annotations,omitempty" json:"annotations,omitempty"`
}

// Rollups are how long windows of each length are kept. The least leaves time to
// make the next longer ones of them.
type Rollups struct {
	Minute      Duration `toml:"1m" min:"1h" max:"3650d" live:"yes"`
	FiveMinutes Duration `toml:"5m" min:"3h" max:"3650d" live:"yes"`
	Hour        Duration `toml:"1h" min:"1d" max:"3650d" live:"yes"`
}

// HTTP is the node's one listener.
type HTTP struct {
	// Listen is host:port; with port 0 the system chooses one.
	Listen string `toml:"listen"`
	// TLSCertFile and TLSKeyFile make the listener speak TLS, in PEM.
	TLSCertFile string `toml:"tls_cert_file,omitempty"`
	TLSKeyFile  string `toml:"tls_key_file,omitempty"`
	// AllowPrivateTargets lets HTTP jobs reach loopback and private addresses.
	AllowPrivateTargets bool `toml:"allow_private_targets"`
	// AllowCIDRs are ranges that HTTP jobs may reach though they are closed.
	AllowCIDRs []string `toml:"allow_cidrs,omitempty"`
	// MaxConnections bounds the listener's connections, MaxConnectionsPerAddress those
	// from one address.
	MaxConnections           int `toml:"max_connections" min:"16" max:"1000000"`
	MaxConnectionsPerAddress int `toml:"max_connections_per_address" min:"8" max:"1000000"`
	// AllowReceiverCIDRs are ranges that receivers and the dead-man's call may be in
	// though they are closed.
	AllowReceiverCIDRs []string `toml:"allow_receiver_cidrs,omitempty"`
	// TrustedProxies are ranges of proxies whose X-Forwarded-For names the client.
	TrustedProxies []string `toml:"trusted_proxies,omitempty"`
	// AllowedHosts are further names by which the listener may be addressed.
	AllowedHosts []string `toml:"allowed_hosts,omitempty"`
}

// Dashboard is the page at /.
type Dashboard struct {
	Enabled bool `toml:"enabled"`
	// Auth says who may use the listener: everybody, or who has a token.
	Auth string `toml:"auth" oneof:"none|token"`
	// Groups maps groups of users to scopes.
	Groups    map[string]string `toml:"groups,omitempty" oneof:"viewer|operator|admin"`
	OIDC      OIDC              `toml:"oidc,omitempty"`
	ProxyAuth ProxyAuth         `toml:"proxy_auth,omitempty"`
}

// ByToken says whether whoever uses the listener has to have a token, or to be a user.
func (d Dashboard) ByToken() bool { return d.Auth == "token" }

// Metrics is how often nodes report to the aggregator, and how long the history
// of the cluster's metrics is kept.
type Metrics struct {
	ScrapeInterval Duration `toml:"scrape_interval" min:"1s" max:"1h"`
	// DeadmanURL is asked after each evaluation of the alerts: whoever watches it
	// notices when that ends.
	DeadmanURL string  `toml:"deadman_url,omitempty" refs:"yes" live:"yes"`
	Rollups    Rollups `toml:"rollups"`
}

// Retention is how long finished things are kept.
type Retention struct {
	Completed Duration `toml:"completed" min:"1m" max:"3650d"`
	Cancelled Duration `toml:"cancelled" min:"1m" max:"3650d"`
	Discarded Duration `toml:"discarded" min:"1m" max:"3650d"`
	CronTicks Duration `toml:"cron_ticks" min:"1m" max:"3650d"`
	Logs      Duration `toml:"logs" min:"1m" max:"3650d"`
	Events    Duration `toml:"events" min:"1m" max:"3650d"`
	Metrics   Duration `toml:"metrics" min:"1h" max:"3650d"`
	Audit     Duration `toml:"audit" min:"1m" max:"3650d"`
}
