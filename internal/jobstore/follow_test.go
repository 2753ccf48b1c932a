package jobstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// act is the state of a job at one read after another; the last one is kept.
type act struct {
	job   jobstore.Job
	wrote []jobstore.LogChunk
	err   error
}

type play struct {
	acts []act
	look int
	now  act
}

func (p *play) Get(context.Context, int64) (jobstore.Job, error) {
	p.now = p.acts[min(p.look, len(p.acts)-1)]
	p.look++
	return p.now.job, p.now.err
}

func (p *play) Logs(_ context.Context, _ int64, attempt, afterSeq int) ([]jobstore.LogChunk, error) {
	for _, chunk := range p.now.wrote { // one at a time, as for a long output
		if chunk.Attempt == attempt && chunk.Seq > afterSeq {
			return []jobstore.LogChunk{chunk}, nil
		}
	}
	return nil, nil
}

func TestFollow(t *testing.T) {
	t.Parallel()
	chunk := func(attempt, seq int, text string) jobstore.LogChunk {
		return jobstore.LogChunk{Attempt: attempt, Seq: seq, Chunk: text}
	}
	in := func(state string, attempt int) jobstore.Job { return jobstore.Job{State: state, Attempt: attempt} }
	done := jobstore.Job{State: "completed", Attempt: 2, FinalizedAt: time.Unix(1, 0)}
	all := []jobstore.LogChunk{chunk(1, 1, "a"), chunk(1, 2, "b"), chunk(2, 1, "c"), chunk(2, 2, "d")}
	retried := []act{
		{job: in("available", 0)},
		{job: in("running", 1), wrote: all[:1]},
		{job: in("retryable", 1), wrote: all[:2]},
		{job: in("running", 2), wrote: all[:3]},
		{job: done, wrote: all},
	}
	snoozed := in("scheduled", 0)
	snoozed.Attempts = []jobstore.Attempt{{Attempt: 1, Outcome: jobstore.OutcomeSnoozed}}
	gone := errors.New("gone")
	for _, test := range []struct {
		name           string
		acts           []act
		attempt, after int
		want           string
		err            error
	}{
		{name: "from before the first attempt to the end", acts: retried, want: "abcd"},
		{name: "missed an attempt's end", acts: []act{retried[1], retried[4]}, want: "abcd"},
		{name: "missed a whole attempt", acts: []act{retried[0], retried[4]}, want: "abcd"},
		{name: "finished", acts: retried[4:], want: "cd"},
		{name: "one attempt", acts: retried, attempt: 1, want: "ab"},
		{name: "the second", acts: retried, attempt: 2, want: "cd"},
		{name: "after a chunk", acts: retried[1:], attempt: 1, after: 1, want: "b"},
		{name: "snoozed", acts: []act{
			{job: in("running", 1), wrote: all[:1]},
			{job: snoozed, wrote: all[:1]},
			{job: in("running", 1), wrote: all[:1]},
			{job: in("retryable", 1), wrote: all[:2]},
		}, attempt: 1, want: "ab"},
		{name: "begun while snoozed", acts: []act{{job: snoozed, wrote: all[:1]}, {job: done, wrote: all}}, want: "abcd"},
		{name: "removed", acts: []act{retried[1], {err: gone}}, want: "a", err: gone},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := ""
			err := jobstore.Follow(t.Context(), &play{acts: test.acts}, 1, test.attempt, test.after, func(chunks []jobstore.LogChunk) error {
				for _, chunk := range slices.Clone(chunks) {
					got += chunk.Chunk
				}
				return nil
			})
			if diff := cmp.Diff(test.want, got); diff != "" || !errors.Is(err, test.err) {
				t.Errorf("%s: %v (-want +got):\n%s", test.name, err, diff)
			}
		})
	}
}
