package handover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Duty is what stopping a node would interrupt.
type Duty struct {
	// Leads are the roles that the node leads.
	Leads []string `json:"leads"`
	// SafeToStop is whether the node is drained, leads no role and runs no job, so that
	// stopping it interrupts nothing. StopNote is the reason, as a sentence.
	SafeToStop bool   `json:"safe_to_stop"`
	StopNote   string `json:"stop_note"`
}

// RunningCounter counts the running jobs of client ids.
type RunningCounter interface {
	RunningByOwner(ctx context.Context, owners []string) (map[string]int, error)
}

// Duties returns the duty of each node by its id. It counts the running jobs only of nodes that
// are being drained.
func Duties(ctx context.Context, jobs RunningCounter, nodes []nodestore.Node, leaders []leaderstore.Leader) (map[string]Duty, error) {
	var owners []string
	for _, n := range nodes {
		if n.State == nodestore.Draining {
			owners = append(owners, n.ClientID())
		}
	}
	var running map[string]int
	if len(owners) > 0 {
		var err error
		if running, err = jobs.RunningByOwner(ctx, owners); err != nil {
			return nil, err
		}
	}
	duties := make(map[string]Duty, len(nodes))
	for _, n := range nodes {
		duties[n.NodeID] = dutyOf(n, leaders, max(n.Running, running[n.ClientID()]))
	}
	return duties, nil
}

func dutyOf(n nodestore.Node, leaders []leaderstore.Leader, running int) Duty {
	d := Duty{Leads: []string{}}
	for _, l := range leaders {
		if l.Leads() && l.Incarnation == n.Incarnation {
			d.Leads = append(d.Leads, l.Role)
		}
	}
	var busy []string
	if running == 1 {
		busy = append(busy, "1 job runs")
	} else if running > 1 {
		busy = append(busy, fmt.Sprintf("%d jobs run", running))
	}
	if len(d.Leads) > 0 {
		busy = append(busy, "it leads "+strings.Join(d.Leads, ", "))
	}
	switch {
	case !n.Present():
		d.StopNote = "It does not run."
	case n.State != nodestore.Draining:
		d.StopNote = "It is not drained."
	case len(busy) > 0:
		d.StopNote = strings.ToUpper(busy[0][:1]) + strings.Join(busy, ", and ")[1:] + "."
	default:
		d.SafeToStop, d.StopNote = true, "It leads no role and runs no job."
	}
	return d
}

// BusyError means that a node could not be stopped safely in time.
type BusyError struct{ NodeID, Note string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s cannot be stopped safely yet: %s", e.NodeID, strings.TrimSuffix(e.Note, "."))
}

// settledBeats is the number of heartbeats of a drained node after which it cannot claim a job
// that was offered to it before.
const settledBeats = 2

// AwaitStoppable waits until a drained node can be stopped without interrupting anything, or
// has left. It calls progress with each reason to wait. After within it returns a [BusyError].
// It returns a [RefusedError] if the node is dead or is not being drained.
func (o *Ops) AwaitStoppable(ctx context.Context, id string, within time.Duration, progress func(note string)) error {
	changes, unsubscribe := o.subscribe()
	defer unsubscribe()
	waiting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var last time.Time
	note := "It has not confirmed yet that it is drained."
	for beats := 0; ; {
		n, duty, err := o.readDuty(waiting, id)
		switch {
		case err != nil:
			return busyError(ctx, err, id, note)
		case n.State == nodestore.Left:
			return nil
		case n.State != nodestore.Draining:
			return refusedErrorf("node %s is %s; it was to be drained", id, n.State)
		case last.IsZero():
			last = n.LastHeartbeatAt
		case n.LastHeartbeatAt.After(last):
			last = n.LastHeartbeatAt
			beats++
		}
		if duty.SafeToStop && beats >= settledBeats {
			return nil
		}
		if !duty.SafeToStop && duty.StopNote != note {
			note = duty.StopNote
			progress(note)
		}
		if err := awaitChange(waiting, changes); err != nil {
			return busyError(ctx, err, id, note)
		}
	}
}

// busyError distinguishes a wait that timed out from one that was interrupted.
func busyError(ctx context.Context, err error, id, note string) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return &BusyError{id, note}
	}
	return err
}

func (o *Ops) readDuty(ctx context.Context, id string) (n nodestore.Node, d Duty, err error) {
	if n, err = nodestore.New(o.db).Get(ctx, id); err != nil {
		return n, d, err
	}
	leaders, err := leaderstore.New(o.db).Leaders(ctx)
	if err != nil {
		return n, d, err
	}
	duties, err := Duties(ctx, jobstore.New(o.db), []nodestore.Node{n}, leaders)
	return n, duties[id], err
}
