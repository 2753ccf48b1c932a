package riveradapter

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/wire"
)

// Actions of River's control messages.
const (
	actionCancel = "cancel"
	actionPause  = "pause"
	actionResume = "resume"
)

// handleControl handles a control message and passes it to River's client.
func (p *Pilot) handleControl(payload string) {
	var message jobstore.Control
	if err := json.Unmarshal([]byte(payload), &message); err != nil {
		p.logger.Warn("unreadable control message ignored", "error", err)
		return
	}
	switch message.Action {
	case actionCancel:
		p.buffer.cancel(message.JobID)
		p.cancel(message.JobID)
	case actionPause, actionResume:
		p.buffer.pause(message.Queue, message.Action == actionPause)
	}
	p.listener.push(wire.RiverControlChannel, payload)
}

// IsCancelled reports whether a cancellation of a job has arrived since its claim began.
// An executor must ask after it has made the attempt known to its Cancel.
func (p *Pilot) IsCancelled(jobID int64) bool { return p.buffer.isCancelled(jobID) }

// readControl handles the control state of the database.
func (p *Pilot) readControl(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	messages, err := p.store.Control(ctx)
	if err != nil {
		return fmt.Errorf("read cancelled jobs and paused queues: %w", err)
	}
	for _, message := range messages {
		payload, _ := json.Marshal(message) // marshalling plain data cannot fail
		p.handleControl(string(payload))
	}
	return nil
}
