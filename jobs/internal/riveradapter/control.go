package riveradapter

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/forge-scheduler/forge/internal/wire"
)

// readControl sends the control state to River.
func (p *Pilot) readControl(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	messages, err := p.store.Control(ctx)
	if err != nil {
		return fmt.Errorf("read cancelled jobs and paused queues: %w", err)
	}
	for _, message := range messages {
		payload, _ := json.Marshal(message) // marshalling plain data cannot fail
		p.listener.push(wire.RiverControlChannel, string(payload))
	}
	return nil
}
