package chaos

import (
	"context"
	"syscall"
	"time"

	"github.com/forge-scheduler/forge/internal/devcluster"
)

// restarts are the faults of PostgreSQL itself.
var restarts = map[kind]devcluster.StopMode{
	restartFast: devcluster.StopFast, restartCrash: devcluster.StopImmediate, restartKill: devcluster.StopKill,
}

// inflict does one fault. A restart of PostgreSQL ends the test if the server
// does not come back, so this is for the test's own goroutine.
func (r *run) inflict(ctx context.Context, f fault) {
	switch f.kind {
	case restartFast, restartCrash, restartKill:
		r.server.Restart(restarts[f.kind]) //nolint:contextcheck // half a restart is none
		r.note(f.kind, "")
	case killAny:
		r.signal(r.keepers[f.node], syscall.SIGKILL, f)
	case killLeader:
		r.signal(r.leader(ctx), syscall.SIGKILL, f)
	case freezeLeader:
		r.signal(r.leader(ctx), syscall.SIGSTOP, f)
	case stopLeader:
		r.signal(r.leader(ctx), syscall.SIGTERM, f)
	case endSession:
		r.terminate(ctx, f.kind, endSessionSQL)
	case endNode:
		if k := r.leader(ctx); k != nil {
			r.terminate(ctx, f.kind, endNodeSQL, k.id)
		}
	case endAll:
		r.terminate(ctx, f.kind, endAllSQL)
	case severInCommit:
		r.sever(ctx, f)
	case killAfterRead, killBeforeCommit, killAfterCommit, endBeforeCommit, stopBeforeFence, stopBeforeCommit, delayAfterRead:
		r.injectInTick(ctx, f)
	case loseCommit:
		if k := r.injectInTick(ctx, f); k != nil {
			r.lasting.Go(func() { r.loseReplies(ctx, k, f) })
		}
	case killBeforeComplete, stopBeforeComplete, endBeforeComplete:
		r.strikeWorker(ctx, f)
	case stopAny:
		r.signal(r.keepers[f.node], syscall.SIGTERM, f)
	case freezeAny:
		r.signal(r.keepers[f.node], syscall.SIGSTOP, f)
	case slowWay, stallWay, loseReplies, resetWay:
		r.lasting.Go(func() { r.harmWay(ctx, f) })
	case fillSlots:
		r.lasting.Go(func() { r.fillSlots(ctx, f) })
	case editFile, breakFile:
		r.edit(f)
	case startTwin:
		r.lasting.Go(func() { r.startTwin(f) })
	case overload:
		r.lasting.Go(func() { r.overload(f) })
	case startStranger:
		r.lasting.Go(func() { r.startStranger(ctx, f) })
	case deleteRow:
		r.deleteRow(ctx, roleNames[f.node])
	case poison, flood:
		r.lasting.Go(func() { r.enqueueBad(ctx, f) })
	case losePackets, loseLeaderPackets, loseRequests, loseAnswers:
		r.partition(ctx, f)
	case endedByItself, diskFull, noLog, clockLeap, promoted, packetsLost, repliesLost, strangeTerm, rowMissing,
		switchover, killPrimary, freezePrimary, cutPrimary, stopEtcd, restartHAProxy: // no injector does that
	}
}

// sever has the next commit of a tick end the leader's session, and waits for it.
func (r *run) sever(ctx context.Context, f fault) {
	if _, err := r.pool.Exec(ctx, severSQL); err != nil {
		return // PostgreSQL does not answer
	}
	for ctx.Err() == nil {
		var done bool
		if err := r.pool.QueryRow(ctx, severedSQL).Scan(&done); err == nil && done {
			r.note(f.kind, "")
			return
		}
		time.Sleep(watchEvery)
	}
}

func (r *run) signal(k *keeper, signal syscall.Signal, f fault) {
	if k != nil && k.signal(signal, f) {
		r.note(f.kind, k.id)
	}
}

func (r *run) terminate(ctx context.Context, what kind, sql string, args ...any) {
	var ended int
	if err := r.pool.QueryRow(ctx, sql, args...).Scan(&ended); err == nil && ended > 0 {
		r.note(what, "")
	}
}

// injectInTick has whoever leads strike itself inside a tick, another one, if the lead
// goes elsewhere before, and returns who did; nil when the time is over.
func (r *run) injectInTick(ctx context.Context, f fault) *keeper {
	for k := r.leader(ctx); k != nil; k = r.leader(ctx) {
		if err := k.tell(f); err != nil {
			r.Error(err)
			return nil
		}
		for k.told() && ctx.Err() == nil && !r.leadsAnother(ctx, k.id) {
			time.Sleep(watchEvery)
		}
		if k.untell() {
			continue
		}
		r.note(f.kind, k.id)
		return k
	}
	return nil
}

// leadsAnother says whether the scheduler's leader is another node.
func (r *run) leadsAnother(ctx context.Context, id string) bool {
	leader, _ := r.leads(ctx)
	return leader != "" && leader != id
}

// followed says whether a node that led the scheduler in a term has a successor.
func (r *run) followed(ctx context.Context, id string, term int64) bool {
	leader, current := r.leads(ctx)
	return current > term && (leader != id || r.polls)
}

// leads returns who leads the scheduler and the term; empty and 0 if nobody does as far as is known.
func (r *run) leads(ctx context.Context) (node string, term int64) {
	if err := r.pool.QueryRow(ctx, leaderSQL).Scan(&node, &term); err != nil {
		return "", 0
	}
	return node, term
}

// leader waits for somebody to lead the scheduler; nil when the time is over.
func (r *run) leader(ctx context.Context) *keeper {
	for ctx.Err() == nil {
		id, _ := r.leads(ctx)
		for _, k := range r.keepers {
			if k.id == id {
				return k
			}
		}
		time.Sleep(watchEvery)
	}
	return nil
}
