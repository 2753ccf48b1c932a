package riveradapter

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

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

// readControl sends the control state to River.
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
