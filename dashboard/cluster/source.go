package cluster

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/activity"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Alerts reads the alerts in force, their occurrences and their notifications.
type Alerts interface {
	// List returns the alerts with their open occurrences, firing alerts first.
	List(ctx context.Context) ([]alerts.Status, error)
	// History returns at most limit occurrences that are over, newest first: those of the
	// alerts whose names one of the patterns matches, or of all without patterns. before is
	// the id of the last occurrence of the previous page, or 0.
	History(ctx context.Context, names []filter.Pattern, before int64, limit int) ([]alerts.Occurrence, error)
	// Notifications returns the sent and pending notifications in the same way.
	Notifications(ctx context.Context, names []filter.Pattern, before int64, limit int) ([]alerts.Notification, error)
}

// History reads the recorded metrics of the cluster.
type History interface {
	// Range returns windows series by series, oldest first.
	Range(ctx context.Context, q aggregator.Query) ([]aggregator.Row, error)
	// Sums returns the windows aggregated into points of time.
	Sums(ctx context.Context, q aggregator.SumQuery) ([]aggregator.Sum, error)
	// Breakdown returns at most some keys of a dimension in an order of
	// aggregator.BreakdownOrders.
	Breakdown(ctx context.Context, by string, from, to time.Time, keys int, order string) (aggregator.Breakdown, error)
	// SharePoints returns the shares of some keys, and of all others, by points of time.
	SharePoints(ctx context.Context, q aggregator.ShareQuery, point time.Duration, keys []string) ([]aggregator.SharePoint, error)
	// WorkOf returns what a key of a dimension did in the last minutes; nil if that is not known.
	WorkOf(ctx context.Context, dimension, key string, now, since time.Time) (*aggregator.Work, error)
}

// Leadership reads the current leaders and past tenures.
type Leadership interface {
	// Leaders returns every role, including vacant ones.
	Leaders(ctx context.Context) ([]leaderstore.Leader, error)
	// History returns at most limit tenures of a role, or of all roles if role is empty,
	// newest first.
	History(ctx context.Context, role string, limit int) ([]leaderstore.Tenure, error)
	// Tenures returns the tenures that match a filter, newest first.
	Tenures(ctx context.Context, f leaderstore.TenureFilter) ([]leaderstore.Tenure, error)
	// LedAt returns the state of every role at an instant.
	LedAt(ctx context.Context, at time.Time) ([]leaderstore.LedAt, error)
	// Rates returns how many renewals and heartbeats of leaders succeeded.
	Rates(ctx context.Context) (aggregator.Rates, error)
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
	// Verdicts returns the last verdict of each cron in force that has one.
	Verdicts(ctx context.Context) (map[string]cronstore.Verdict, error)
	// Find returns at most limit crons in force whose names have the words of a text, best
	// match first.
	Find(ctx context.Context, text string, limit int) ([]cronstore.Named, error)
	// Get returns one cron, even if it was removed, or cronstore.ErrNotFound.
	Get(ctx context.Context, name string) (cronstore.Cron, error)
	// Ticks returns at most limit ticks of a cron that were due before an instant (zero:
	// the newest), newest first.
	Ticks(ctx context.Context, cron string, before time.Time, limit int) ([]cronstore.Tick, error)
	// TicksBetween returns at most limit ticks of a cron that were due from an instant on and
	// before another one (zero: the newest), newest first.
	TicksBetween(ctx context.Context, cron string, from, before time.Time, limit int) ([]cronstore.Tick, error)
	// TicksFrom returns at most limit ticks of a cron that were due from an instant on, oldest
	// first.
	TicksFrom(ctx context.Context, cron string, from time.Time, limit int) ([]cronstore.Tick, error)
	// Definition returns what the jobs of a kind run, by the configuration in force; nil if
	// that does not define the kind.
	Definition(ctx context.Context, kind string) (*cronstore.Definition, error)
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
	// List returns jobs by descending id. It ignores Where.
	List(ctx context.Context, filter jobstore.Filter) ([]jobstore.Job, error)
	// Search returns a page of the jobs that match a filter, by descending id. A page may be
	// short although others follow.
	Search(ctx context.Context, filter jobstore.Filter) (jobstore.Found, error)
	// Get returns jobstore.ErrNotFound when there is no such job.
	Get(ctx context.Context, id int64) (jobstore.Job, error)
	// States returns the states of these jobs, without those that no longer exist.
	States(ctx context.Context, ids []int64) (map[int64]string, error)
	// Logs returns the chunks of an attempt's output that follow afterSeq, at most one
	// batch. An empty result means that there are no more.
	Logs(ctx context.Context, id int64, attempt, afterSeq int) ([]jobstore.LogChunk, error)
	// RunningByOwner counts the running jobs of each of these client ids.
	RunningByOwner(ctx context.Context, owners []string) (map[string]int, error)
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

// Activity reads the event log and the audit log as one stream.
type Activity interface {
	// Find returns a page of the entries that match a query, newest first.
	Find(ctx context.Context, q activity.Query) (activity.Page, error)
	// Follow calls emit with the newest entries and then with each new one, oldest first,
	// until ctx ends.
	Follow(ctx context.Context, q activity.Query, emit func([]activity.Entry) error) error
}

// Compaction reads the passes of the log compactor.
type Compaction interface {
	// Status returns at most limit passes, newest first, and the sizes of the tables.
	Status(ctx context.Context, limit int) (compactor.Status, error)
}

// Source holds what the pages read from. Every field is required.
type Source struct {
	Leadership Leadership
	Incidents  Incidents
	Nodes      Nodes
	Health     Health
	Crons      Crons
	Explain    Explain
	Jobs       Jobs
	Counts     Counts
	Queues     Queues
	Reports    QueueReports
	Dead       DeadLetters
	Events     Events
	Activity   Activity
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

// DeadLetters reads dead letters.
type DeadLetters interface {
	// DeadGroups returns the groups, newest death first. DeadLetters returns at most limit letters
	// by descending id, only those with ids below before unless before is 0.
	DeadGroups(ctx context.Context, filter jobstore.DeadFilter) ([]jobstore.DeadGroup, error)
	DeadLetters(ctx context.Context, filter jobstore.DeadFilter, before int64, limit int) ([]jobstore.DeadLetter, error)
}

// Queues reads the depth of the queues, and the limits of the cluster.
type Queues interface {
	// Queues returns the queues by name.
	Queues(ctx context.Context) ([]jobstore.Queue, error)
	Usages(ctx context.Context) ([]jobstore.Usage, error)
}
