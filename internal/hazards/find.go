// Package hazards finds conditions that stop a cluster even if its nodes and roles
// are all up: paused queues, jobs that no node takes, snapshots that prevent VACUUM
// from removing rows, slots that keep write-ahead log, roles that change leaders repeatedly, and wrong clocks.
//
// Reading the facts is cheap even if there are many jobs. Find evaluates the facts and returns
// texts for forge doctor and the overview.
package hazards

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Thresholds of hazards. The alerts of deploy/prometheus have the same thresholds.
const (
	longPause = 24 * time.Hour
	longWait  = time.Hour

	// A snapshot is old by its age or, if the age is unknown, by the number of
	// transactions whose dead rows it keeps.
	oldSnapshot             = time.Hour
	oldSnapshotTransactions = 1_000_000

	// A replication slot lags if it keeps this much write-ahead log, in bytes.
	laggingSlot = 10 << 30

	// A role is unstable if it lost this many leaders within turnoverTime.
	turnoverTime = time.Hour
	manyTerms    = 5

	clockTolerance = time.Second
)

// named is how many hazards of the same kind are listed separately.
const named = 3

// Kind is the kind of a hazard.
type Kind string

// Kinds of hazards.
const (
	PausedQueue  Kind = "paused queue"
	WaitingJob   Kind = "waiting job"
	OldSnapshot  Kind = "old snapshot"
	LaggingSlot  Kind = "lagging slot"
	UnsteadyRole Kind = "unsteady role"
	SetBackClock Kind = "set back clock"
	NodeClock    Kind = "node clock"
)

// Hazard is a condition that was found.
type Hazard struct {
	Kind Kind
	// Text describes the condition, without a full stop at its end.
	Text string
	// Remedy is what to do about it.
	Remedy string
}

// Find returns the hazards in the facts.
func (f Facts) Find() []Hazard {
	return slices.Concat(f.setBack(), brief(f.pausedQueues()), brief(f.waitingJobs()), brief(f.oldSnapshots()), brief(f.laggingSlots()),
		brief(f.unsteadyRoles()), brief(f.nodeClocks()))
}

// Of returns the hazards of these kinds.
func (f Facts) Of(kinds ...Kind) []Hazard {
	return slices.DeleteFunc(f.Find(), func(h Hazard) bool { return !slices.Contains(kinds, h.Kind) })
}

func (f Facts) setBack() []Hazard {
	if f.Clock.SetBack <= clockTolerance {
		return nil
	}
	return []Hazard{{
		SetBackClock,
		fmt.Sprintf("the database's clock was set back by %s or more: the cluster recorded later instants", explain.Span(f.Clock.SetBack)),
		"let the database's host keep time by NTP, which never steps back; until the clock has caught up, ticks and jobs that were due later wait",
	}}
}

// longestWait returns the queues, ordered by how long their oldest jobs have
// waited.
func (f Facts) longestWait() []jobstore.Queue {
	return slices.SortedStableFunc(slices.Values(f.Queues), func(a, b jobstore.Queue) int { return cmp.Compare(b.WaitSeconds, a.WaitSeconds) })
}

func (f Facts) pausedQueues() []Hazard {
	var found []Hazard
	for _, q := range f.longestWait() {
		if q.PausedAt.IsZero() || q.OldestAt.IsZero() || q.Now.Sub(q.PausedAt) < longPause {
			continue
		}
		found = append(found, Hazard{
			PausedQueue,
			fmt.Sprintf("queue %s is paused for %s, and its oldest job has waited for %s", q.Name, explain.Span(q.Now.Sub(q.PausedAt)), explain.Span(q.Wait())),
			"forge queue resume " + q.Name,
		})
	}
	return found
}

// waitingJobs ignores paused queues, whose jobs are meant to wait.
func (f Facts) waitingJobs() []Hazard {
	var found []Hazard
	for _, q := range f.longestWait() {
		if q.PausedAt.IsZero() && q.Wait() >= longWait {
			found = append(found, Hazard{
				WaitingJob,
				fmt.Sprintf("the oldest available job of queue %s has waited for %s", q.Name, explain.Span(q.Wait())),
				"forge job list --state available --queue " + q.Name + ", and forge job explain ID says why a job waits",
			})
		}
	}
	return found
}

func (f Facts) oldSnapshots() []Hazard { return hazardsOf(usualLimits.oldSnapshots(f.Snapshots)) }

func (f Facts) laggingSlots() []Hazard { return hazardsOf(usualLimits.laggingSlots(f.Slots)) }

func describeSlot(s postgres.ReplicationSlot) string {
	consumer := "without a consumer"
	if s.Active {
		consumer = "with a slow consumer"
	}
	if s.Lost {
		return fmt.Sprintf("the replication slot %s, %s, is beyond max_slot_wal_keep_size: its consumer loses changes", s.Name, consumer)
	}
	return fmt.Sprintf("the replication slot %s, %s, keeps %s of write-ahead log, which fills the disk", s.Name, consumer, humanize.IBytes(uint64(s.RetainedBytes)))
}

func slotRemedy(name string) string {
	return fmt.Sprintf("let its consumer catch up, or SELECT pg_drop_replication_slot('%s')", strings.ReplaceAll(name, "'", "''"))
}

func describe(s postgres.Snapshot) string {
	text := map[string]string{
		postgres.Session:  fmt.Sprintf("the transaction of process %d (%s)", s.PID, s.Name),
		postgres.Standby:  "the standby " + s.Name,
		postgres.Slot:     "the replication slot " + s.Name,
		postgres.Prepared: "the prepared transaction " + s.Name,
	}[s.Holder]
	if s.Age > 0 {
		return fmt.Sprintf("%s is open for %s: it", text, explain.Span(s.Age))
	}
	return fmt.Sprintf("%s holds a snapshot from %s transactions ago: it", text, humanize.Comma(s.Transactions))
}

// remedies holds the remedy by holder.
var remedies = map[string]func(postgres.Snapshot) string{
	postgres.Session: func(s postgres.Snapshot) string {
		return fmt.Sprintf("end it: SELECT pg_terminate_backend(%d); idle_in_transaction_session_timeout ends those that were forgotten", s.PID)
	},
	postgres.Standby: func(postgres.Snapshot) string {
		return "end the long query on the standby, or turn hot_standby_feedback off there"
	},
	postgres.Slot: func(s postgres.Snapshot) string {
		return slotRemedy(s.Name)
	},
	postgres.Prepared: func(s postgres.Snapshot) string {
		return fmt.Sprintf("COMMIT PREPARED or ROLLBACK PREPARED '%s'", strings.ReplaceAll(s.Name, "'", "''"))
	},
}

// unsteadyRoles ignores terms that ended as planned.
func (f Facts) unsteadyRoles() []Hazard {
	ends := map[string]map[string]int{}
	for _, t := range f.Tenures {
		if t.EndedAt.IsZero() || f.Clock.Now.Sub(t.EndedAt) > turnoverTime || slices.Contains([]string{"resigned", "transferred"}, t.EndReason) {
			continue
		}
		if ends[t.Role] == nil {
			ends[t.Role] = map[string]int{}
		}
		ends[t.Role][t.EndReason]++
	}
	var found []Hazard
	for _, role := range slices.Sorted(maps.Keys(ends)) {
		total := 0
		var reasons []string
		for _, reason := range slices.Sorted(maps.Keys(ends[role])) {
			total += ends[role][reason]
			reasons = append(reasons, fmt.Sprintf("%d %s", ends[role][reason], strings.ReplaceAll(cmp.Or(reason, "unknown"), "_", " ")))
		}
		if total >= manyTerms {
			found = append(found, Hazard{
				UnsteadyRole,
				fmt.Sprintf("%s lost its leader %d times within an hour (%s)", role, total, strings.Join(reasons, ", ")),
				"forge leader history --role " + role + " names the nodes, whose logs say why each term ended",
			})
		}
	}
	return found
}

func (f Facts) nodeClocks() []Hazard {
	var found []Hazard
	for _, c := range f.Clocks {
		if c.Ahead.Abs() <= clockTolerance {
			continue
		}
		side := "ahead of"
		if c.Ahead < 0 {
			side = "behind"
		}
		found = append(found, Hazard{
			NodeClock,
			fmt.Sprintf("the clock of node %s is %s %s the database's", c.NodeID, explain.Span(c.Ahead.Abs()), side),
			"let every machine keep time by NTP",
		})
	}
	return found
}

// brief lists the first few hazards of a kind and counts the rest.
func brief(found []Hazard) []Hazard {
	if len(found) <= named {
		return found
	}
	found[named-1].Text += fmt.Sprintf("; %d more are like it", len(found)-named)
	return found[:named]
}

// maxTenures bounds the number of tenures read: the newest of all roles.
const maxTenures = 200

// Facts holds the data in which Find looks for hazards.
type Facts struct {
	Clock     postgres.Clock
	Queues    []jobstore.Queue    // as WaitingQueues reads them
	Snapshots []postgres.Snapshot // oldest first
	Slots     []postgres.ReplicationSlot
	// Tenures are the newest tenures, newest first.
	Tenures []leaderstore.Tenure
	Clocks  []aggregator.Clock
}

// Store reads the facts of a database.
type Store struct{ db postgres.DB }

// New returns the store of a database.
func New(db postgres.DB) *Store { return &Store{db} }

// Read reads the facts.
func (s *Store) Read(ctx context.Context) (f Facts, err error) {
	if f.Clock, err = postgres.ReadClock(ctx, s.db); err != nil {
		return f, err
	}
	if f.Queues, err = jobstore.New(s.db).WaitingQueues(ctx); err != nil {
		return f, err
	}
	if f.Snapshots, err = postgres.Snapshots(ctx, s.db); err != nil {
		return f, err
	}
	if f.Slots, err = postgres.Slots(ctx, s.db); err != nil {
		return f, err
	}
	if f.Tenures, err = leaderstore.New(s.db).History(ctx, "", maxTenures); err != nil {
		return f, err
	}
	f.Clocks, err = aggregator.NewStore(s.db).Clocks(ctx)
	return f, err
}
