package chaos

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/parts"
)

// partitions are the faults of the network itself.
var partitions = map[kind]func(*parts.Namespace, context.Context) error{
	losePackets: (*parts.Namespace).Drop, loseLeaderPackets: (*parts.Namespace).Drop,
	loseRequests: (*parts.Namespace).DropRequests, loseAnswers: (*parts.Namespace).DropReplies,
}

// partition is what a node's network loses now.
type partition struct {
	mu     sync.Mutex
	latest int // which of those that were begun
}

// networks gives each node a network of its own, or says why this machine does not.
func networks(t *testing.T) (map[string]*parts.Namespace, *parts.MissingError) {
	t.Helper()
	inside := map[string]*parts.Namespace{}
	for _, id := range nodeNames {
		namespace, err := parts.NewNamespace(context.Background())
		if missing, ok := errors.AsType[*parts.MissingError](err); ok {
			return nil, missing
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = namespace.Close() })
		inside[id] = namespace
	}
	return inside, nil
}

// throughOwnNetwork is the address of PostgreSQL inside a node's network.
func (r *run) throughOwnNetwork(id string) string {
	url, err := r.inside[id].Through(r.url)
	if err != nil {
		r.Error(err)
	}
	return url
}

// oneWithoutLink lets packets between one of the nodes and PostgreSQL itself be lost.
// Before the others stands a link, whose connections to PostgreSQL last, as a
// pooler's do.
func (r *run) oneWithoutLink(id string) string {
	if r.inside == nil || id != nodeNames[nodeCount-1] {
		return ""
	}
	return r.throughOwnNetwork(id)
}

// wayOf makes a node's way to PostgreSQL.
func (r *run) wayOf(id string) (*pgtest.Link, string) {
	if r.direct != nil {
		if url := r.direct(id); url != "" {
			return nil, url
		}
	}
	address := "127.0.0.1"
	if namespace := r.inside[id]; namespace != nil {
		address = namespace.Outside().String()
	}
	link := pgtest.ProxyAt(r.T, address, r.url)
	return link, link.URL()
}

// linked is a node with a link on its way: the one of the number, or the first one; nil if no
// node has a link.
func (r *run) linked(number int) *keeper {
	for _, k := range []*keeper{r.keepers[number], r.keepers[0]} {
		if k.link != nil {
			return k
		}
	}
	return nil
}

// leaveOut counts a fault that cannot be done here.
func (r *run) leaveOut(what kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leftOut[what]++
}

// partition has packets of a node be lost for a while, beside the faults that follow.
func (r *run) partition(ctx context.Context, f fault) {
	if r.inside == nil {
		r.leaveOut(f.kind)
		return
	}
	k := r.keepers[f.node]
	if f.kind == loseLeaderPackets {
		k = r.leader(ctx)
	}
	if k != nil {
		r.note(f.kind, k.id)
		r.lasting.Go(func() { r.losePackets(ctx, k, f.hold, partitions[f.kind]) })
	}
}

// losePackets is over after a while. Another one that begins meanwhile takes its place.
func (r *run) losePackets(ctx context.Context, k *keeper, hold time.Duration, lose func(*parts.Namespace, context.Context) error) {
	ctx = context.WithoutCancel(ctx) // what was begun is fixed
	k.cut.mu.Lock()
	k.cut.latest++
	mine := k.cut.latest
	if err := lose(r.inside[k.id], ctx); err != nil {
		r.Error(err)
	}
	k.cut.mu.Unlock()
	time.Sleep(hold)
	k.cut.mu.Lock()
	defer k.cut.mu.Unlock()
	if k.cut.latest != mine {
		return
	}
	if err := r.inside[k.id].Heal(ctx); err != nil {
		r.Error(err)
	}
}

// loseReplies has what a node asks for be done, and never lets it hear of it: its
// connections are reset, or it has given up before the answer comes through.
func (r *run) loseReplies(ctx context.Context, k *keeper, f fault) {
	switch {
	case k.link == nil && r.inside == nil:
		r.leaveOut(f.kind)
		return
	case k.link == nil:
		r.losePackets(ctx, k, lease+f.hold, (*parts.Namespace).DropReplies)
		return
	}
	k.link.StallReplies()
	time.Sleep(commitPause + f.hold/8)
	k.link.Cut()
	k.link.Resume()
}
