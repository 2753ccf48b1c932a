package hazards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// minRecordInterval is the shortest time between two looks at the snapshots.
	minRecordInterval = 5 * time.Second
	// repeatAfter is the time after which an occurrence without a known start is recorded
	// again by another leader.
	repeatAfter = 24 * time.Hour
)

// limits are the thresholds of old snapshots and lagging slots.
type limits struct {
	age          time.Duration
	transactions int64
	slotBytes    int64
}

var usualLimits = limits{oldSnapshot, oldSnapshotTransactions, laggingSlot}

// occurrence is a hazard with what identifies it.
type occurrence struct {
	Hazard
	subject string
	// since is the earliest time at which an event of this occurrence can have been
	// recorded, as an age.
	since time.Duration
}

func hazardsOf(found []occurrence) []Hazard {
	var hazards []Hazard
	for _, o := range found {
		hazards = append(hazards, o.Hazard)
	}
	return hazards
}

func (l limits) oldSnapshots(snapshots []postgres.Snapshot) []occurrence {
	var found []occurrence
	for _, s := range snapshots {
		if s.Age < l.age && s.Transactions < l.transactions {
			continue
		}
		o := occurrence{since: repeatAfter, Hazard: Hazard{
			OldSnapshot, describe(s) + " keeps VACUUM from removing dead rows, and everything slows down", remedies[s.Holder](s),
		}}
		if s.Age > 0 {
			o.since = s.Age + time.Minute
		}
		o.subject = s.Holder + " " + s.Name
		if s.PID != 0 {
			o.subject = fmt.Sprintf("%s %d", s.Holder, s.PID)
		}
		found = append(found, o)
	}
	return found
}

func (l limits) laggingSlots(slots []postgres.ReplicationSlot) []occurrence {
	var found []occurrence
	for _, s := range slots {
		if s.Lost || s.RetainedBytes >= l.slotBytes {
			found = append(found, occurrence{Hazard{LaggingSlot, describeSlot(s), slotRemedy(s.Name)}, postgres.Slot + " " + s.Name, repeatAfter})
		}
	}
	return found
}

// Recorder appends an event for each snapshot that becomes old and each replication slot
// that begins to lag.
type Recorder struct {
	db       postgres.DB
	interval time.Duration
	logger   *slog.Logger
	limits   limits
}

// NewRecorder returns a Recorder that looks at every interval, but at most every five
// seconds.
func NewRecorder(db postgres.DB, interval time.Duration, logger *slog.Logger) *Recorder {
	return &Recorder{db, max(interval, minRecordInterval), logger, usualLimits}
}

// Lead records occurrences until ctx ends. It returns leaderstore.ErrDeposed when the term
// has ended; other errors are logged.
func (r *Recorder) Lead(ctx context.Context, fence leaderstore.Fence) error {
	ticker := time.NewTicker(r.interval)
	defer ticker.Stop()
	var known []occurrence
	for ctx.Err() == nil {
		found, err := r.record(ctx, fence, known)
		switch {
		case errors.Is(err, leaderstore.ErrDeposed):
			return err
		case err != nil && ctx.Err() == nil:
			r.logger.WarnContext(ctx, "could not record old snapshots", "term", fence.Term, "error", err)
		case err == nil:
			known = found
		}
		watchdog.Await(ctx, ticker.C)
	}
	return nil
}

// record records what is not among known, and returns what it has found.
func (r *Recorder) record(ctx context.Context, fence leaderstore.Fence, known []occurrence) ([]occurrence, error) {
	snapshots, err := postgres.Snapshots(ctx, r.db)
	if err != nil {
		return nil, err
	}
	slots, err := postgres.Slots(ctx, r.db)
	if err != nil {
		return nil, err
	}
	found := append(r.limits.oldSnapshots(snapshots), r.limits.laggingSlots(slots)...)
	added := slices.DeleteFunc(slices.Clone(found), func(o occurrence) bool {
		return slices.ContainsFunc(known, func(k occurrence) bool { return k.Kind == o.Kind && k.subject == o.subject })
	})
	if len(added) == 0 {
		return found, nil
	}
	return found, fence.Do(ctx, r.db, func(tx pgx.Tx, now time.Time) error {
		for _, o := range added {
			data := map[string]any{"hazard": o.Kind, "subject": o.subject, "text": o.Text, "remedy": o.Remedy}
			event := eventstore.Event{Type: eventstore.HazardFound, NodeID: fence.NodeID, Role: fence.Role, Term: fence.Term}
			if err := eventstore.New(tx).AppendOnce(ctx, event, data, []string{"hazard", "subject"}, now.Add(-o.since)); err != nil {
				return err
			}
		}
		return nil
	})
}
