package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// countEvery is how often a process tells what it has worked.
const countEvery = 5 * time.Millisecond

// counter tells from outside how many jobs a process has worked: to ask the
// server for that, a hundred times a second, would cost a tenth of its time.
type counter struct{ worked atomic.Int64 }

func (c *counter) add(int) { c.worked.Add(1) }

// keep writes the count to a file until the process ends.
func (c *counter) keep(path string) rig.Use {
	return func(ctx context.Context, _ client) error {
		file, err := os.Create(path) //nolint:gosec // the bench's own
		if err != nil {
			return fmt.Errorf("count jobs: %w", err)
		}
		defer func() { _ = file.Close() }() // nothing is buffered
		ticker := time.NewTicker(countEvery)
		defer ticker.Stop()
		for last := int64(-1); ; {
			if now := c.worked.Load(); now != last {
				last = now
				if _, err := file.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(now)), 0); err != nil { //nolint:gosec // a count
					return fmt.Errorf("count jobs: %w", err)
				}
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
		}
	}
}

// counted is what a process has worked since it began; one that has not begun counts
// nothing.
func counted(path string) int64 {
	body, err := os.ReadFile(path) //nolint:gosec // the bench's own
	if err != nil || len(body) != 8 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(body)) //nolint:gosec // a count
}
