package assign

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

// definitions are the jobs of the configuration in force. While files differ
// between nodes, in the middle of a rolling restart or after one went back, a
// job must run as the cluster defines it, or wait for a node that can.
type definitions struct {
	hash      string
	appliedAt time.Time
	digests   map[string]string // by kind
}

// heldBy returns the kinds of the node's that mean there what they mean in the
// cluster. A Go program's own workers are defined nowhere, neither here nor
// there.
func (d definitions) heldBy(n nodestore.Node) map[string]bool {
	held := make(map[string]bool, len(n.Kinds))
	for _, kind := range n.Kinds {
		if n.Definitions[kind] == d.digests[kind] {
			held[kind] = true
		}
	}
	return held
}

// refresh reads what is in force now, the body only if it is another.
func (d definitions) refresh(ctx context.Context, db cronstore.Queryer) (definitions, error) {
	inForce, err := cronstore.ConfigInForceUnless(ctx, db, d.hash)
	if err != nil {
		return d, err
	}
	if inForce.Hash != d.hash {
		if d.digests, err = config.Definitions(inForce.Body); err != nil {
			return d, err
		}
	}
	d.hash, d.appliedAt = inForce.Hash, inForce.AppliedAt
	return d, nil
}

// outdated says that a job was read after another configuration was put in
// force: it must not be placed by what the board knows.
func (d definitions) outdated(jobs []job) bool {
	return len(jobs) > 0 && !jobs[0].appliedAt.Equal(d.appliedAt)
}
