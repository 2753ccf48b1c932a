// Package config reads forge.toml: strictly, and with every error of the file
// at once.
package config

// Config is the whole file. Names of keys are in the struct tags; defaults are
// in Default, and in Complete for the sections that a file may repeat.
//
// The other tags are rules for a value that is written down: min and max bound
// a number or a duration, oneof lists the words of a string, kind names the kind
// of job that a key belongs to, and refs lets a string hold ${env:NAME} and
// ${file:PATH}.
type Config struct {
	Database     Database          `toml:"database"`
	Node         Node              `toml:"node"`
	Cluster      Cluster           `toml:"cluster"`
	Scheduler    Scheduler         `toml:"scheduler"`
	CronDefaults CronPolicy        `toml:"cron_defaults"`
	Queues       map[string]Queue  `toml:"queues,omitempty"`
	Jobs         map[string]Job    `toml:"jobs,omitempty"`
	Crons        []Cron            `toml:"crons,omitempty"`
	Alerts       []Alert           `toml:"alerts,omitempty"`
	Notify       map[string]Notify `toml:"notify,omitempty"`
	HTTP         HTTP              `toml:"http"`
	Dashboard    Dashboard         `toml:"dashboard"`
	Metrics      Metrics           `toml:"metrics"`
	Retention    Retention         `toml:"retention"`

	secrets secrets
}

// Database says how PostgreSQL is reached.
type Database struct {
	URL string `toml:"url,omitempty" refs:"yes"`
	// LeaderURL is a direct, session-mode address for the election's session.
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
	WorkerCapabilities []string          `toml:"worker_capabilities"`
	Tags               map[string]string `toml:"tags,omitempty"`
	// Slots is the most jobs that the node runs at once.
	Slots        int      `toml:"slots" min:"1" max:"10000"`
	DrainTimeout Duration `toml:"drain_timeout" min:"100ms" max:"1d"`
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
	// application shares.
	LockNamespace  int            `toml:"lock_namespace" min:"0" max:"127"`
	LeaderElection LeaderElection `toml:"leader_election"`
}

// LeaderElection times the elections.
type LeaderElection struct {
	CheckInterval    Duration                 `toml:"check_interval" min:"100ms" max:"1d"`
	LeaseDuration    Duration                 `toml:"lease_duration" min:"500ms" max:"1d"`
	RefreshInterval  Duration                 `toml:"refresh_interval" min:"100ms" max:"1d"`
	LockTimeout      Duration                 `toml:"lock_timeout" min:"1ms" max:"1d"`
	Strategy         string                   `toml:"strategy" oneof:"advisory"`
	HistoryRetention Duration                 `toml:"history_retention" min:"1h" max:"3650d"`
	LeaderFile       string                   `toml:"leader_file"`
	Roles            map[string]RoleOverrides `toml:"roles,omitempty"`
}

// RoleOverrides change one role's election.
type RoleOverrides struct {
	// LockID has at most 56 bits: the namespace stands above them.
	LockID int64 `toml:"lock_id,omitzero" min:"1" max:"72057594037927935"`
}

// Scheduler is how the scheduler's leader works.
type Scheduler struct {
	Timezone   string `toml:"timezone"`
	Assignment string `toml:"assignment" oneof:"least_loaded|round_robin"`
}

// CronPolicy is what happens to ticks that cannot simply fire. In
// [cron_defaults] it is the default of every cron; in [[crons]] empty means the
// default.
type CronPolicy struct {
	Timezone      string   `toml:"timezone,omitempty"`
	Overlap       string   `toml:"overlap,omitempty" oneof:"skip|allow|queue|queue_all|replace"`
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
	// Priority is the default of the queue's jobs, 1 (first) to 4.
	Priority int `toml:"priority,omitzero" min:"1" max:"4"`
}

// Job is a job without code: a command, a request or a statement.
type Job struct {
	Kind       string            `toml:"kind,omitempty" oneof:"shell|http|sql"`
	Queue      string            `toml:"queue,omitempty"`
	Priority   int               `toml:"priority,omitzero" min:"1" max:"4"`
	Timeout    Duration          `toml:"timeout,omitzero" min:"100ms" max:"30d"`
	Retry      Retry             `toml:"retry,omitempty"`
	Capability string            `toml:"capability,omitempty"`
	Tags       map[string]string `toml:"tags,omitempty"`
	Output     Output            `toml:"output,omitempty"`

	// Shell.
	Command []string          `toml:"command,omitempty" kind:"shell"`
	Env     map[string]string `toml:"env,omitempty" kind:"shell" refs:"yes"`
	Cwd     string            `toml:"cwd,omitempty" kind:"shell"`
	User    string            `toml:"user,omitempty" kind:"shell"`

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
}

// Kinds of jobs without code.
const (
	KindShell = "shell"
	KindHTTP  = "http"
	KindSQL   = "sql"
)

// Retry is what follows a failed attempt: backoff doubles from Backoff up to
// MaxBackoff.
type Retry struct {
	MaxAttempts int      `toml:"max_attempts,omitzero" min:"1" max:"1000"`
	Backoff     Duration `toml:"backoff,omitzero" min:"100ms" max:"30d"`
	MaxBackoff  Duration `toml:"max_backoff,omitzero" min:"100ms" max:"30d"`
}

// Output bounds what is kept of a job's output.
type Output struct {
	// Capture is the most bytes kept of one attempt.
	Capture int `toml:"capture,omitzero" min:"1" max:"16777216"`
}

// Cron fires a job on a schedule. Instead of Job it may hold a command, a URL
// or a statement of its own.
type Cron struct {
	Name     string         `toml:"name"`
	Schedule string         `toml:"schedule"`
	Job      string         `toml:"job,omitempty"`
	Args     map[string]any `toml:"args,omitempty"`
	Paused   bool           `toml:"paused,omitempty"`
	// StartAt is the first instant at which the cron may be due, EndAt the first
	// at which it may not any more.
	StartAt Instant `toml:"start_at,omitempty"`
	EndAt   Instant `toml:"end_at,omitempty"`
	// Exclude holds dates and expressions of ticks that are skipped.
	Exclude []string `toml:"exclude,omitempty"`
	CronPolicy

	// The short forms; Load turns each into a Job named like the cron.
	Command []string `toml:"command,omitempty"`
	URL     string   `toml:"url,omitempty" refs:"yes"`
	SQL     string   `toml:"sql,omitempty"`
}

// Alert is a condition on the cluster's metrics, in PromQL.
type Alert struct {
	Name        string            `toml:"name"`
	Condition   string            `toml:"condition"`
	For         Duration          `toml:"for,omitzero" min:"0s" max:"366d"`
	Severity    string            `toml:"severity,omitempty" oneof:"info|warning|error|critical"`
	Notify      []string          `toml:"notify,omitempty"`
	Labels      map[string]string `toml:"labels,omitempty"`
	Annotations map[string]string `toml:"annotations,omitempty"`
}

// Notify is a receiver of alerts.
type Notify struct {
	Type string `toml:"type,omitempty"`
	URL  string `toml:"url,omitempty" refs:"yes"`
}

// HTTP is the node's one listener.
type HTTP struct {
	Listen string `toml:"listen"`
	// AllowPrivateTargets lets HTTP jobs reach loopback and private addresses.
	AllowPrivateTargets bool `toml:"allow_private_targets"`
}

// Dashboard is the page at /.
type Dashboard struct {
	Enabled bool `toml:"enabled"`
}

// Metrics is how often nodes report to the aggregator.
type Metrics struct {
	ScrapeInterval Duration `toml:"scrape_interval" min:"1s" max:"1h"`
}

// Retention is how long finished things are kept.
type Retention struct {
	Completed Duration `toml:"completed" min:"1m" max:"3650d"`
	Cancelled Duration `toml:"cancelled" min:"1m" max:"3650d"`
	Discarded Duration `toml:"discarded" min:"1m" max:"3650d"`
	CronTicks Duration `toml:"cron_ticks" min:"1m" max:"3650d"`
	Logs      Duration `toml:"logs" min:"1m" max:"3650d"`
	Events    Duration `toml:"events" min:"1m" max:"3650d"`
}
