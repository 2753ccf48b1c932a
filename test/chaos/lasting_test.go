package chaos

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/test/nodes"
)

const (
	// latency is what a slow way adds to whatever goes by, each way.
	latency = 60 * time.Millisecond
	// brokenFor is how long a node may take to read a file that is whole again.
	brokenFor = 10 * time.Second
	// edition is what an edit writes at the file's end, and ruin what breaks it.
	edition = "\n[jobs.edition_%d]\nkind = \"shell\"\ncommand = [\"true\"]\n"
	ruin    = "\n[cluster\n"
)

// harmWay does something to a node's way to PostgreSQL, and fixes it.
func (r *run) harmWay(ctx context.Context, f fault) {
	k := r.linked(f.node)
	if k == nil {
		r.leaveOut(f.kind)
		return
	}
	r.note(f.kind, k.id)
	switch f.kind { //nolint:exhaustive // the others are somebody else's
	case slowWay:
		k.link.Delay(latency)
	case stallWay:
		k.link.Stall()
	case loseReplies:
		r.loseReplies(ctx, k, f)
	case resetWay:
		k.link.Cut()
	}
	if f.kind == slowWay || f.kind == stallWay {
		time.Sleep(f.hold)
	}
	k.link.Resume()
}

// fillSlots takes every connection that PostgreSQL has left.
func (r *run) fillSlots(ctx context.Context, f fault) {
	r.note(f.kind, "")
	var taken []*pgx.Conn
	for {
		conn, err := pgx.Connect(ctx, r.server.URL())
		if err != nil {
			break // no more are to be had
		}
		taken = append(taken, conn)
	}
	time.Sleep(f.hold / 4)
	for _, conn := range taken {
		_ = conn.Close(context.WithoutCancel(ctx)) // the server may have ended it
	}
}

// edit puts another edition of the file in place, or breaks it for a while.
func (r *run) edit(f fault) {
	r.note(f.kind, "")
	if f.kind == editFile {
		r.edition.Add(1)
		r.writeFile()
		return
	}
	r.broken.Store(time.Now().Add(f.hold).UnixNano())
	r.writeFile()
	r.lasting.Go(func() {
		time.Sleep(f.hold)
		r.writeFile()
	})
}

// writeFile puts the file in place as it is to be now.
func (r *run) writeFile() {
	r.fileMu.Lock()
	defer r.fileMu.Unlock()
	text := r.text
	if n := r.edition.Load(); n > 0 {
		text += fmt.Sprintf(edition, n)
	}
	if time.Now().UnixNano() < r.broken.Load() {
		text += ruin
	}
	if err := os.WriteFile(r.config+".new", []byte(text), 0o600); err != nil {
		r.Error(err)
		return
	}
	if err := os.Rename(r.config+".new", r.config); err != nil {
		r.Error(err)
	}
}

// wasBroken says whether a node may have met a broken file.
func (r *run) wasBroken() bool { return time.Now().UnixNano() < r.broken.Load()+int64(brokenFor) }

// startTwin starts a process under the id of a node that has one, where another lives.
func (r *run) startTwin(f fault) {
	k, host := r.keepers[f.node], r.keepers[(f.node+1)%nodeCount]
	r.note(f.kind, k.id)
	line := host.line(k.id)
	twin, err := nodes.Start(line[0], k.log, host.env(), line[1:]...)
	if err != nil {
		r.Errorf("start a twin of %s: %v", k.id, err)
		return
	}
	select {
	case <-twin.Done():
		return
	case <-time.After(f.hold):
		_ = twin.Process.Signal(syscall.SIGTERM) // it may be gone
	}
	select {
	case <-twin.Done():
	case <-time.After(waitTimeout):
		twin.Kill()
		r.Errorf("the twin of %s does not stop", k.id)
	}
}

// enqueueBad enqueues a job that does no good.
func (r *run) enqueueBad(ctx context.Context, f fault) {
	kind := poisonJob
	if f.kind == flood {
		kind = floodJob
	}
	if r.enqueueOne(ctx, kind) {
		r.note(f.kind, "")
	}
}

// strikeWorker has a node strike itself when a job of its is done. It gives up when
// none is for a while.
func (r *run) strikeWorker(ctx context.Context, f fault) {
	k := r.keepers[f.node]
	if err := k.tell(f); err != nil {
		r.Error(err)
		return
	}
	for until := time.Now().Add(lease); k.told() && ctx.Err() == nil && time.Now().Before(until); {
		time.Sleep(watchEvery)
	}
	if !k.untell() {
		r.note(f.kind, k.id)
	}
}
