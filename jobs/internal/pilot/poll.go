package pilot

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/mailbox"
	"github.com/forge-scheduler/forge/internal/wire"
)

// controlSQL finds what River's control notifications would have told this
// client.
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

// pollOnce takes the offers from the mailbox until ctx ends or the database does
// not answer. It tells River again and again how things are: to be told twice is
// nothing to it.
func (p *Pilot) pollOnce(ctx context.Context) (connected bool, err error) {
	ear := &mailbox.Poll{DB: p.pool, Channel: p.offers, Every: p.poll, Tick: p.control}
	p.box.ask() // offers may have passed unheard
	var told time.Time
	for {
		note, err := ear.WaitForNotification(ctx)
		if err != nil {
			return connected, err
		}
		connected = true
		if note.Channel == p.offers {
			p.take(note)
		}
		if time.Since(told) >= p.poll && p.tap.isOpen() {
			told = time.Now()
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
		return fmt.Errorf("look for cancelled jobs and paused queues: %w", err)
	}
	messages, err := pgx.CollectRows(rows, pgx.RowToStructByPos[control])
	if err != nil {
		return fmt.Errorf("look for cancelled jobs and paused queues: %w", err)
	}
	for _, message := range messages {
		payload, _ := json.Marshal(message) // plain data always marshals
		p.tap.push(wire.RiverControlChannel, string(payload))
	}
	return nil
}

// send tells the scheduler's leader, by whichever way it hears.
func (p *Pilot) send(ctx context.Context, payload string) error {
	channel := wire.Channel(p.schema, wire.CreditChannel)
	if p.poll > 0 {
		return mailbox.Send(ctx, p.pool, channel, payload)
	}
	_, err := p.pool.Exec(ctx, notifySQL, channel, payload)
	return err
}
