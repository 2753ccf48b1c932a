package config

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Roles that a node can lead.
const (
	RoleScheduler         = "scheduler"
	RoleMetricsAggregator = "metrics_aggregator"
	RoleLogCompactor      = "log_compactor"
	// RoleWorker runs jobs; nobody leads it.
	RoleWorker = "worker"
)

// DefaultQueue is the queue of jobs that name none.
const DefaultQueue = "default"

// Default returns what an empty file means, but for the node's id.
func Default() *Config {
	return &Config{
		Database: Database{PoolSize: 16, Schema: "public"},
		Node: Node{
			Roles:              []string{RoleWorker, RoleScheduler, RoleMetricsAggregator, RoleLogCompactor},
			WorkerCapabilities: []string{"general"},
			Slots:              50,
			DrainTimeout:       Duration(30 * time.Second),
		},
		Cluster: Cluster{
			Name:              "forge",
			HeartbeatInterval: Duration(time.Second),
			DeadThreshold:     Duration(5 * time.Second),
			LockNamespace:     -1,
			LeaderElection: LeaderElection{
				CheckInterval:    Duration(time.Second),
				LeaseDuration:    Duration(3 * time.Second),
				RefreshInterval:  Duration(750 * time.Millisecond),
				LockTimeout:      Duration(200 * time.Millisecond),
				Strategy:         "advisory",
				HistoryRetention: Duration(90 * day),
			},
		},
		Scheduler: Scheduler{Timezone: "UTC", Assignment: "least_loaded"},
		CronDefaults: CronPolicy{
			Overlap:       "skip",
			CatchUp:       "latest",
			CatchUpWindow: Duration(time.Hour),
			CatchUpLimit:  10,
			DSTMissing:    "run-after",
			DSTRepeated:   "first",
		},
		HTTP: HTTP{Listen: "127.0.0.1:8080", MaxConnections: 1000, MaxConnectionsPerAddress: 250},
		Dashboard: Dashboard{
			Enabled: true, Auth: "none",
			OIDC: OIDC{Scopes: []string{"openid", "profile", "email"}, GroupsClaim: "groups"},
		},
		Metrics: Metrics{
			ScrapeInterval: Duration(15 * time.Second),
			Rollups:        Rollups{Minute: Duration(day), FiveMinutes: Duration(week), Hour: Duration(90 * day)},
		},
		Retention: Retention{
			Completed: Duration(day),
			Cancelled: Duration(day),
			Discarded: Duration(week),
			CronTicks: Duration(30 * day),
			Logs:      Duration(week),
			Events:    Duration(30 * day),
			Metrics:   Duration(day),
			Audit:     Duration(365 * day),
		},
	}
}

// defaultJob is what a job of no particular kind leaves out. Its queue's
// priority goes before Priority.
func defaultJob() Job {
	return Job{
		Queue:    DefaultQueue,
		Priority: 1,
		Timeout:  Duration(10 * time.Minute),
		Retry: Retry{
			MaxAttempts: 3,
			Backoff:     Duration(10 * time.Second),
			MaxBackoff:  Duration(10 * time.Minute),
		},
		Output: Output{Capture: 256 << 10},
	}
}

// Complete fills in what a Config that was built in Go leaves out, as Load does
// for a file, and reports what is wrong with it. Start from Default.
func (c *Config) Complete() Report {
	l := &loader{
		name: "config", cfg: c, ix: newIndex(""), now: time.Now, limits: defaultLimits,
		given: map[string]string{}, broken: map[string]bool{}, aliases: map[string]string{},
	}
	l.complete()
	l.check()
	return l.report
}

// complete fills in what the file leaves out: the node's id, the policy of every
// cron, the settings of every job, the jobs of crons in the short form, and the
// queues that jobs name.
func (l *loader) complete() {
	c := l.cfg
	l.fillLeaderURL()
	if c.Node.ID == "" {
		if l.has("node.id") && l.ok("node.id") {
			l.wrong("node.id", "empty", `""`, "a node id, or no such key, which means the host's name")
		}
		c.Node.ID = hostID()
	}
	l.fillRoles()
	fill(&c.CronDefaults.Timezone, c.Scheduler.Timezone)
	if c.Jobs == nil {
		c.Jobs = map[string]Job{}
	}
	if c.Queues == nil {
		c.Queues = map[string]Queue{}
	}
	for i := range c.Crons {
		c.Crons[i].inherit(c.CronDefaults)
		l.shortForm(i)
	}
	for name, job := range c.Jobs {
		fill(&job.Queue, DefaultQueue)
		job.inherit(c.Queues[job.Queue].Priority)
		c.Jobs[name] = job
	}
	c.declareQueues()
	l.completeNotify()
	for i := range c.Alerts {
		fill(&c.Alerts[i].Severity, "warning")
	}
}

func (l *loader) fillLeaderURL() {
	db := &l.cfg.Database
	if db.LeaderURL != "" {
		return
	}
	db.LeaderURL = db.URL
	if known, ok := l.cfg.secrets.references["database.url"]; ok {
		l.cfg.secrets.remember("database.leader_url", known)
	}
}

// declareQueues adds the queues that only jobs name, so that nodes work them.
func (c *Config) declareQueues() {
	names := []string{DefaultQueue}
	for _, job := range c.Jobs {
		names = append(names, job.Queue)
	}
	for _, name := range names {
		queue := c.Queues[name]
		fill(&queue.Priority, defaultJob().Priority)
		c.Queues[name] = queue
	}
}

// shortForm turns a cron's own command, URL or statement into a job that is named
// like the cron.
func (l *loader) shortForm(i int) {
	cron, path := &l.cfg.Crons[i], element("crons", i)
	job := Job{Command: cron.Command, URL: cron.URL, Statement: cron.SQL}
	forms := 0
	for kind, used := range map[string]bool{KindShell: len(cron.Command) > 0, KindHTTP: cron.URL != "", KindSQL: cron.SQL != ""} {
		if used {
			job.Kind = kind
			forms++
		}
	}
	if forms != 1 || cron.Job != "" || cron.Name == "" {
		return // checkCronJob says what is wrong
	}
	if _, twice := l.aliases[join("jobs", cron.Name)]; twice {
		return // checkCronName says which other cron has the name
	}
	if _, taken := l.cfg.Jobs[cron.Name]; taken {
		l.wrong(path+".name", "a job of this name is defined too", strconv.Quote(cron.Name), "job = NAME here, or another name")
		return
	}
	l.cfg.Jobs[cron.Name] = job
	l.alias(i, job.Kind)
	cron.Job, cron.Command, cron.URL, cron.SQL = cron.Name, nil, "", ""
}

// alias lets problems and secrets of a job in the short form be found where its
// cron stands.
func (l *loader) alias(i int, kind string) {
	from := element("crons", i)
	to := join("jobs", l.cfg.Crons[i].Name)
	l.aliases[to] = from
	if kind == KindHTTP {
		l.cfg.secrets.move(from+".url", to+".url")
	}
}

// fill sets a value that was left out.
func fill[T comparable](target *T, value T) {
	var zero T
	if *target == zero {
		*target = value
	}
}

// inherit fills in the policy that a cron leaves out.
func (p *CronPolicy) inherit(defaults CronPolicy) {
	fill(&p.Timezone, defaults.Timezone)
	fill(&p.Overlap, defaults.Overlap)
	fill(&p.CatchUp, defaults.CatchUp)
	fill(&p.CatchUpWindow, defaults.CatchUpWindow)
	fill(&p.CatchUpLimit, defaults.CatchUpLimit)
	fill(&p.DSTMissing, defaults.DSTMissing)
	fill(&p.DSTRepeated, defaults.DSTRepeated)
	fill(&p.Jitter, defaults.Jitter)
}

// inherit fills in what a job leaves out. queuePriority is 0 where the queue has
// none.
func (j *Job) inherit(queuePriority int) {
	defaults := defaultJob()
	fill(&j.Priority, queuePriority)
	fill(&j.Priority, defaults.Priority)
	if j.Kind == KindGo {
		return // the rest is the worker's own
	}
	fill(&j.Timeout, defaults.Timeout)
	fill(&j.Retry.MaxAttempts, defaults.Retry.MaxAttempts)
	fill(&j.Retry.Backoff, defaults.Retry.Backoff)
	fill(&j.Retry.MaxBackoff, max(defaults.Retry.MaxBackoff, j.Retry.Backoff))
	fill(&j.Output.Capture, defaults.Output.Capture)
	switch {
	case j.Kind == KindSQL:
		fill(&j.StatementTimeout, j.Timeout)
	case j.Kind == KindHTTP && j.Body != "":
		fill(&j.Method, "POST")
	case j.Kind == KindHTTP:
		fill(&j.Method, "GET")
	}
}

// hostID is the host's name, in the characters that a node's id may have.
func hostID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	id := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '-'
		}
		return r
	}, host)
	return id[:min(len(id), maxNodeID)]
}

// JobFor returns the job that a cron fires, and its name.
func (c *Config) JobFor(cron Cron) (name string, job Job, ok bool) {
	name = cron.Job
	if name == "" {
		name = cron.Name
	}
	job, ok = c.Jobs[name]
	return name, job, ok
}

// QueueWorkers is the most jobs of a queue that this node runs at once.
func (c *Config) QueueWorkers(queue string) int {
	workers := c.Queues[queue].MaxWorkers
	if workers == 0 {
		return c.Node.Slots
	}
	return min(workers, c.Node.Slots)
}

// QueueReserve is how many slots of this node only jobs of a queue may use.
func (c *Config) QueueReserve(queue string) int {
	return min(c.Queues[queue].Reserve, c.QueueWorkers(queue))
}

// HasRole says whether the node takes part in a role.
func (n Node) HasRole(role string) bool { return slices.Contains(n.Roles, role) }
