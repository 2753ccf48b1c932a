package riveradapter

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

// controlSQL finds the state that River's control notifications report to this client.
const controlSQL = `
SELECT 'cancel', id, queue
FROM river_job
WHERE state = 'running' AND ` + lastClient + ` = $1 AND metadata ? 'cancel_attempted_at'
UNION ALL
SELECT CASE WHEN paused_at IS NULL THEN 'resume' ELSE 'pause' END, 0, name
FROM river_queue`

// control is River's control message.
type control struct {
	Action string `json:"action"`
	JobID  int64  `json:"job_id,omitempty"`
	Queue  string `json:"queue"`
}

// pollOnce reads offers from the message table until ctx ends or the database does not
// answer. It sends the control state to River repeatedly; repeated messages have no
// effect.
func (p *Pilot) pollOnce(ctx context.Context) (connected bool, err error) {
	listener := &postgres.PollListener{DB: p.pool, Channel: p.offers, PollInterval: p.poll, TickChannel: p.control}
	p.buffer.requestReport() // offers may have been lost
	var controlReadAt time.Time
	for {
		note, err := listener.WaitForNotification(ctx)
		if err != nil {
			return connected, err
		}
		connected = true
		if note.Channel == p.offers {
			p.handleNotification(note)
		}
		if time.Since(controlReadAt) >= p.poll && p.listener.isOpen() {
			controlReadAt = time.Now()
			if err := p.readControl(ctx); err != nil {
				return connected, err
			}
		}
	}
}

func (p *Pilot) readControl(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, err := p.pool.Query(ctx, controlSQL, p.clientID)
	if err != nil {
		return fmt.Errorf("read cancelled jobs and paused queues: %w", err)
	}
	messages, err := pgx.CollectRows(rows, pgx.RowToStructByPos[control])
	if err != nil {
		return fmt.Errorf("read cancelled jobs and paused queues: %w", err)
	}
	for _, message := range messages {
		payload, _ := json.Marshal(message) // marshalling plain data cannot fail
		p.listener.push(wire.RiverControlChannel, string(payload))
	}
	return nil
}

// send sends a payload to the scheduler's leader, as a notification or as a message.
func (p *Pilot) send(ctx context.Context, payload string) error {
	channel := wire.Channel(p.schema, wire.CreditChannel)
	if p.poll > 0 {
		return postgres.SendMessage(ctx, p.pool, channel, payload)
	}
	_, err := p.pool.Exec(ctx, notifySQL, channel, payload)
	return err
}
