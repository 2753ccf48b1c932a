package assign

import (
	"context"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// definitions are the job definitions of the configuration in force. Configuration files
// may differ between nodes, for example during a rolling restart. A job must run as the
// cluster defines it, or wait for a node with the same definition.
type definitions struct {
	hash      string
	appliedAt time.Time
	digests   map[string]string // by kind
	fair      map[string]jobstore.FairQueue
}

// kindsOf returns the kinds that the node defines as the configuration in force does.
// Workers that a Go program registers itself have no definition on either side.
func (d definitions) kindsOf(n nodestore.Node) map[string]bool {
	held := make(map[string]bool, len(n.Kinds))
	for _, kind := range n.Kinds {
		if n.Definitions[kind] == d.digests[kind] {
			held[kind] = true
		}
	}
	return held
}

// refresh returns the definitions in force. It reads the configuration's body only if the
// hash has changed.
func (d definitions) refresh(ctx context.Context, db postgres.DB) (definitions, error) {
	inForce, err := cronstore.New(db).SettingsUnless(ctx, d.hash)
	if err != nil {
		return d, err
	}
	if inForce.Hash != d.hash {
		if d.digests, err = config.Definitions(inForce.Body); err != nil {
			return d, err
		}
		if d.fair, err = fairQueues(inForce.Body); err != nil {
			return d, err
		}
	}
	d.hash, d.appliedAt = inForce.Hash, inForce.AppliedAt
	return d, nil
}

// outdated reports whether the jobs were read after another configuration was applied.
// Such jobs must not be placed with these definitions.
func (d definitions) outdated(jobs []job) bool {
	return len(jobs) > 0 && !jobs[0].appliedAt.Equal(d.appliedAt)
}
