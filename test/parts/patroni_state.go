package parts

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// stateTimeout bounds the wait for a member that may be cut off.
const stateTimeout = 2 * time.Second

// PatroniServer is a server as Patroni describes it.
type PatroniServer struct {
	Name  string
	Role  string // leader, sync_standby or replica
	State string // running or streaming when all is well
}

// PatroniState is the answer of one Patroni about its cluster.
type PatroniState struct{ Members []PatroniServer }

// Primary is the name of the server that leads; empty: there is none.
func (s PatroniState) Primary() string {
	for _, m := range s.Members {
		if m.Role == "leader" && m.running() {
			return m.Name
		}
	}
	return ""
}

func (m PatroniServer) running() bool { return m.State == "running" || m.State == "streaming" }

// Whole says that every server runs, one of them as primary and, if wanted, one as synchronous
// replica.
func (s PatroniState) Whole(synchronous bool) bool {
	roles := map[string]int{}
	for _, m := range s.Members {
		if !m.running() {
			return false
		}
		roles[m.Role]++
	}
	return len(s.Members) == patroniMembers && roles["leader"] == 1 && (!synchronous || roles["sync_standby"] == 1)
}

// State asks the members until one answers.
func (p *Patroni) State(ctx context.Context) (state PatroniState, err error) {
	for _, m := range p.Members {
		if state, err = m.state(ctx); err == nil {
			break
		}
	}
	return state, err
}

func (m *PatroniMember) state(ctx context.Context) (state PatroniState, err error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	err = m.Rest(ctx, http.MethodGet, "/cluster", nil, &state)
	return state, err
}

// Primary is the member that leads; nil if there is none.
func (p *Patroni) Primary(ctx context.Context) *PatroniMember {
	state, err := p.State(ctx)
	if err != nil {
		return nil
	}
	if i := slices.IndexFunc(p.Members, func(m *PatroniMember) bool { return m.Name == state.Primary() }); i >= 0 {
		return p.Members[i]
	}
	return nil
}

// Switchover has another server become the primary, and returns when it has, as far as Patroni
// knows.
func (p *Patroni) Switchover(ctx context.Context) error {
	primary := p.Primary(ctx)
	if primary == nil {
		return fmt.Errorf("switch over: there is no primary")
	}
	return primary.Rest(ctx, http.MethodPost, "/switchover", map[string]string{"leader": primary.Name}, nil)
}
