package jobs

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
)

// riverKeys are the keys under which River's functions look for their values in the
// context of a worker. River does not export them, so they are learned from a call of each
// function.
type riverKeys struct {
	client   any // of ClientFromContext and JobCompleteTx
	metadata any // of RecordOutput, MetadataSet and JobCompleteTx
	steps    any // of the resumable steps
}

// keyProbe is a context that stores the key of the first value that it is asked for.
type keyProbe struct {
	context.Context //nolint:containedctx // a context itself

	key any
}

func (p *keyProbe) Value(key any) any {
	if p.key == nil {
		p.key = key
	}
	return nil
}

// learnKey returns the first key for which call asks its context.
func learnKey(call func(ctx context.Context)) any {
	probe := &keyProbe{Context: context.Background()}
	func() {
		defer func() { _ = recover() }() // resumable steps panic outside a worker
		call(probe)
	}()
	return probe.key
}

var keysOfRiver = riverKeys{
	client:   learnKey(func(ctx context.Context) { _, _ = river.ClientFromContextSafely[pgx.Tx](ctx) }),
	metadata: learnKey(func(ctx context.Context) { _ = river.MetadataSet(ctx, "key", nil) }),
	steps:    learnKey(func(ctx context.Context) { river.ResumableStep(ctx, "step", nil, nil) }),
}

// value implements valuer.
func (t *task) value(key any) (value any, ok bool) {
	switch key {
	case attemptKey{}:
		return &t.attempt, true
	case keysOfRiver.client:
		t.executor.pilot.MayBeSubscribed()
		return t.executor.client, true
	case keysOfRiver.metadata:
		return t.updates(), true
	case keysOfRiver.steps:
		t.executor.visit(t)
		return t.lent.Value(key), true
	default:
		value = t.trace.Value(key)
		return value, value != nil
	}
}
