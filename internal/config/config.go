// Package config reads forge.toml: strictly, and with every error of the file
// at once.
package config

// Config is the whole file. Names of keys are in the struct tags; defaults are
// in Default.
type Config struct {
	Database     Database          `toml:"database"`
	Node         Node              `toml:"node"`
	Cluster      Cluster           `toml:"cluster"`
	Scheduler    Scheduler         `toml:"scheduler"`
	CronDefaults CronPolicy        `toml:"cron_defaults"`
	Queues       map[string]Queue  `toml:"queues"`
	Jobs         map[string]Job    `toml:"jobs"`
	Crons        []Cron            `toml:"crons"`
	Alerts       []Alert           `toml:"alerts"`
	Notify       map[string]Notify `toml:"notify"`
	HTTP         HTTP              `toml:"http"`
	Dashboard    Dashboard         `toml:"dashboard"`
	Metrics      Metrics           `toml:"metrics"`
	Retention    Retention         `toml:"retention"`
}

// Database says how PostgreSQL is reached.
type Database struct {
	URL string `toml:"url"`
	// LeaderURL is a direct, session-mode address for the election's session.
	// Default: URL.
	LeaderURL string `toml:"leader_url"`
	// PoolSize is the most connections of the node's pool.
	PoolSize int    `toml:"pool_size"`
	Schema   string `toml:"schema"`
}

// Node is what this process brings to the cluster.
type Node struct {
	// ID names the node in the cluster; default: the host's name.
	ID                 string            `toml:"id"`
	Roles              []string          `toml:"roles"`
	WorkerCapabilities []string          `toml:"worker_capabilities"`
	Tags               map[string]string `toml:"tags"`
	// Slots is the most jobs that the node runs at once.
	Slots        int      `toml:"slots"`
	DrainTimeout Duration `toml:"drain_timeout"`
	// APIURL is where other people reach this node; default: the listener's
	// own address.
	APIURL string `toml:"api_url"`
}

// Cluster holds what all nodes share about each other.
type Cluster struct {
	Name              string   `toml:"name"`
	HeartbeatInterval Duration `toml:"heartbeat_interval"`
	DeadThreshold     Duration `toml:"dead_threshold"`
	// LockNamespace moves every advisory lock id, for a database that another
	// application shares.
	LockNamespace  int            `toml:"lock_namespace"`
	LeaderElection LeaderElection `toml:"leader_election"`
}

// LeaderElection times the elections.
type LeaderElection struct {
	CheckInterval    Duration                 `toml:"check_interval"`
	LeaseDuration    Duration                 `toml:"lease_duration"`
	RefreshInterval  Duration                 `toml:"refresh_interval"`
	LockTimeout      Duration                 `toml:"lock_timeout"`
	Strategy         string                   `toml:"strategy"`
	HistoryRetention Duration                 `toml:"history_retention"`
	Roles            map[string]RoleOverrides `toml:"roles"`
}

// RoleOverrides change one role's election.
type RoleOverrides struct {
	LockID int64 `toml:"lock_id"`
}

// Scheduler is how the scheduler's leader works.
type Scheduler struct {
	Timezone   string `toml:"timezone"`
	Assignment string `toml:"assignment"`
}

// CronPolicy is what happens to ticks that cannot simply fire. In
// [cron_defaults] it is the default of every cron; in [[crons]] empty means the
// default.
type CronPolicy struct {
	Timezone      string   `toml:"timezone"`
	Overlap       string   `toml:"overlap"`
	CatchUp       CatchUp  `toml:"catch_up"`
	CatchUpWindow Duration `toml:"catch_up_window"`
	CatchUpLimit  int      `toml:"catch_up_limit"`
	DSTMissing    string   `toml:"dst_missing"`
	DSTRepeated   string   `toml:"dst_repeated"`
}

// CatchUp is "none", "latest" or "all"; in TOML also true (all) and false
// (none).
type CatchUp string

// Queue limits one queue.
type Queue struct {
	// MaxWorkers is the most jobs of the queue that one node runs at once.
	MaxWorkers int `toml:"max_workers"`
	// Priority is the default of the queue's jobs, 1 (first) to 4.
	Priority int `toml:"priority"`
}

// Job is a job without code: a command, a request or a statement.
type Job struct {
	Kind       string            `toml:"kind"`
	Queue      string            `toml:"queue"`
	Priority   int               `toml:"priority"`
	Timeout    Duration          `toml:"timeout"`
	Retry      Retry             `toml:"retry"`
	Capability string            `toml:"capability"`
	Tags       map[string]string `toml:"tags"`
	Output     Output            `toml:"output"`

	// Shell.
	Command []string          `toml:"command"`
	Env     map[string]string `toml:"env"`
	Cwd     string            `toml:"cwd"`
	User    string            `toml:"user"`

	// HTTP.
	Method       string            `toml:"method"`
	URL          string            `toml:"url"`
	Headers      map[string]string `toml:"headers"`
	Body         string            `toml:"body"`
	ExpectStatus []int             `toml:"expect_status"`

	// SQL.
	Statement        string   `toml:"statement"`
	Database         string   `toml:"database"`
	StatementTimeout Duration `toml:"statement_timeout"`
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
	MaxAttempts int      `toml:"max_attempts"`
	Backoff     Duration `toml:"backoff"`
	MaxBackoff  Duration `toml:"max_backoff"`
}

// Output bounds what is kept of a job's output.
type Output struct {
	// Capture is the most bytes kept of one attempt.
	Capture int `toml:"capture"`
}

// Cron fires a job on a schedule. Instead of Job it may hold a command, a URL
// or a statement of its own.
type Cron struct {
	Name     string         `toml:"name"`
	Schedule string         `toml:"schedule"`
	Job      string         `toml:"job"`
	Args     map[string]any `toml:"args"`
	Paused   bool           `toml:"paused"`
	CronPolicy

	// The short forms; Load turns each into a Job named like the cron.
	Command []string `toml:"command"`
	URL     string   `toml:"url"`
	SQL     string   `toml:"sql"`
}

// Alert is a condition on the cluster's metrics, in PromQL.
type Alert struct {
	Name        string            `toml:"name"`
	Condition   string            `toml:"condition"`
	For         Duration          `toml:"for"`
	Severity    string            `toml:"severity"`
	Notify      []string          `toml:"notify"`
	Labels      map[string]string `toml:"labels"`
	Annotations map[string]string `toml:"annotations"`
}

// Notify is a receiver of alerts.
type Notify struct {
	Type string `toml:"type"`
	URL  string `toml:"url"`
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
	ScrapeInterval Duration `toml:"scrape_interval"`
}

// Retention is how long finished things are kept.
type Retention struct {
	Completed Duration `toml:"completed"`
	Cancelled Duration `toml:"cancelled"`
	Discarded Duration `toml:"discarded"`
	CronTicks Duration `toml:"cron_ticks"`
	Logs      Duration `toml:"logs"`
	Events    Duration `toml:"events"`
}
