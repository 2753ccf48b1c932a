package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/test/parts"
)

// process is a node, or a client of the peer.
type process struct {
	*rig.Process

	network *parts.Namespace // nil: this machine's
}

// start runs a program, in a network if one is given.
func (c *cluster) start(id string, network *parts.Namespace, env []string, line ...string) (*process, error) {
	if network != nil {
		line = network.Inside(line...)
	}
	started, err := rig.Launch(c.dir, id, env, line...)
	if err != nil {
		return nil, err
	}
	p := &process{Process: started, network: network}
	c.nodes = append(c.nodes, p)
	return p, nil
}

// stoppedLeading is when a node stopped leading the scheduler, by its own log.
func (p *process) stoppedLeading() (time.Time, error) {
	body, err := p.Log()
	if err != nil {
		return time.Time{}, err
	}
	for line := range bytes.Lines(body) {
		var entry struct {
			Time time.Time `json:"time"`
			Msg  string    `json:"msg"`
			Role string    `json:"role"`
		}
		if json.Unmarshal(line, &entry) == nil && entry.Msg == "lost leadership" && entry.Role == "scheduler" {
			return entry.Time, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s does not say that it stopped leading", p.ID)
}
