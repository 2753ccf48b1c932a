package jobstore

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestSelectJobs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind, keyed string
		want        JobSelection
		problem     string
	}{
		{"", "", JobSelection{}, ""},
		{"send", "", JobSelection{Kind: "send"}, ""},
		{"", "args.tenant=acme", JobSelection{Key: "args.tenant", Value: "acme"}, ""},
		{"", "tenant=a=b", JobSelection{Key: "args.tenant", Value: "a=b"}, ""},
		{"send", "cron=nightly", JobSelection{"send", "cron", "nightly"}, ""},
		{"", "tags.region=", JobSelection{Key: "tags.region"}, ""},
		{"", "tenant", JobSelection{}, "no value"},
		{"", "=acme", JobSelection{}, "no key"},
		{"", "env.tenant=acme", JobSelection{}, "no key"},
		{"", "'a.b'=x", JobSelection{}, "no key"},
	} {
		got, err := SelectJobs(test.kind, test.keyed)
		wrong, ok := errors.AsType[*SelectionError](err)
		switch {
		case test.problem == "" && (err != nil || got != test.want):
			t.Errorf("%q: %+v, %v", test.keyed, got, err)
		case test.problem != "" && (!ok || !strings.Contains(wrong.Error(), test.problem)):
			t.Errorf("%q: %+v, %v", test.keyed, got, err)
		}
	}
}

// A shell reads the flags as the selection, whatever the value.
func TestSelectionFlags(t *testing.T) {
	t.Parallel()
	for _, selection := range []JobSelection{{}, {Kind: "send"}, {Key: "args.tenant", Value: "o'brien & $HOME"}, {Kind: "send", Key: "cron"}} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s\\n'"+selection.Flags()).Output()
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if selection.Kind != "" {
			want += "--kind\n" + selection.Kind + "\n"
		}
		if selection.Key != "" {
			want += "--key\n" + selection.Keyed() + "\n"
		}
		if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(string(out))); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", selection, diff)
		}
	}
}

func pauseJobs(t *testing.T, pool *pgxpool.Pool, order QueuePauseOrder, wantChanged bool) {
	t.Helper()
	if _, changed, err := New(pool).PauseQueue(t.Context(), "default", order); err != nil || changed != wantChanged {
		t.Fatalf("pause %+v: changed %t, %v", order, changed, err)
	}
}

// Claims take no job that a pause of a kind or of a value of a key holds back, with a limit or
// without, until it is resumed.
func TestClaimsLeavePausedJobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newTestClient(t, pool)
	setLimits(t, pool, Limit{Scope: ScopeJob, Name: "limited", Most: 99})
	mustExec(t, pool, `INSERT INTO river_queue (name, updated_at) VALUES ('default', now())`)
	mustExec(t, pool, `INSERT INTO river_job (kind, args) SELECT kind, jsonb_build_object('tenant', tenant)
		FROM unnest('{send,bounce,limited}'::text[]) AS kind, unnest('{a,b}'::text[]) AS tenant ORDER BY kind, tenant`)
	// 1, 2: bounce; 3, 4: limited; 5, 6: send; odd numbers: tenant a.
	pauseJobs(t, pool, QueuePauseOrder{By: "ada", Reason: "too much", Jobs: JobSelection{Key: "args.tenant", Value: "a"}}, true)
	pauseJobs(t, pool, QueuePauseOrder{By: "eve", Jobs: JobSelection{Key: "args.tenant", Value: "a"}}, false)
	pauseJobs(t, pool, QueuePauseOrder{Jobs: JobSelection{Kind: "bounce", Key: "args.tenant", Value: "b"}}, true)
	paused, err := New(pool).PausedJobs(t.Context(), numbers(1, 6))
	if diff := cmp.Diff([]int64{1, 2, 3, 5}, paused); err != nil || diff != "" {
		t.Errorf("paused jobs (-want +got), %v:\n%s", err, diff)
	}
	if pause, err := New(pool).JobPause(t.Context(), 3); err != nil || pause == nil || pause.PausedBy != "ada" || pause.Value != "a" {
		t.Errorf("the pause of job 3: %+v, %v", pause, err)
	}
	claimAll := func() (ids []int64) {
		t.Helper()
		for _, claim := range []func() ([]Row, error){
			func() ([]Row, error) {
				return claimUnlimited(t.Context(), client, Offer{Queue: "default", IDs: []int64{1, 2, 5, 6}, Term: 1, MaxAttemptedBy: 100})
			},
			func() ([]Row, error) {
				return claimLimited(t.Context(), client, Offer{Queue: "default", IDs: []int64{3, 4}, Term: 1, MaxAttemptedBy: 100})
			},
		} {
			rows, err := claim()
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				ids = append(ids, row.ID)
			}
		}
		return ids
	}
	if diff := cmp.Diff([]int64{6, 4}, claimAll()); diff != "" {
		t.Errorf("claimed jobs (-want +got):\n%s", diff)
	}
	_, changed, err := New(pool).ResumeQueue(t.Context(), "default", QueuePauseOrder{Jobs: JobSelection{Key: "args.tenant", Value: "a"}})
	if err != nil || !changed {
		t.Fatalf("resumed %t, %v", changed, err)
	}
	if diff := cmp.Diff([]int64{1, 5, 3}, claimAll()); diff != "" {
		t.Errorf("then claimed jobs (-want +got):\n%s", diff)
	}
	changes, err := eventstore.New(pool).QueueChanges(t.Context(), "default", 10)
	if err != nil || len(changes) != 3 || changes[0].Paused() || changes[0].Jobs != "args.tenant=a" || changes[1].Jobs != "kind bounce, args.tenant=b" || changes[2].Reason != "too much" {
		t.Errorf("changes %+v, %v", changes, err)
	}
}

// A pause of jobs ends by itself, and the leader tells so. Until then, it is listed.
func TestPauseOfJobsEnds(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	mustExec(t, pool, `INSERT INTO river_queue (name, updated_at) VALUES ('default', now())`)
	long := strings.Repeat("x", 300)
	pauseJobs(t, pool, QueuePauseOrder{For: time.Hour, Jobs: JobSelection{Key: "args.tenant", Value: long}}, true)
	if wait, err := New(pool).NextDue(t.Context()); err != nil || wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("the next due time is in %v: %v", wait, err)
	}
	pauses, err := New(pool).JobPauses(t.Context(), "default")
	if err != nil || len(pauses) != 1 || pauses[0].PausedUntil.IsZero() || len(pauses[0].Value) >= len(long) {
		t.Fatalf("%+v, %v", pauses, err)
	}
	mustExec(t, pool, `UPDATE forge_pauses SET until = now()`)
	if queues, err := New(pool).PausingQueues(t.Context()); err != nil || len(queues) != 0 {
		t.Errorf("%v are pausing: %v", queues, err)
	}
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := New(tx).EndPauses(t.Context(), time.Now().Add(time.Minute), 10)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	changes, err := eventstore.New(pool).QueueChanges(t.Context(), "default", 10)
	if err != nil || len(changes) != 2 || changes[0].Reason != pauseEnded || changes[0].Paused() || !changes[1].Paused() {
		t.Errorf("changes %+v, %v", changes, err)
	}
}

// A queue has few pauses of jobs, and a pause of an unknown queue is refused.
func TestPausesOfJobsAreBounded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	order := QueuePauseOrder{Jobs: JobSelection{Kind: "k"}}
	if _, _, err := New(pool).PauseQueue(t.Context(), "unknown", order); !errors.Is(err, ErrNoQueue) {
		t.Errorf("an unknown queue: %v", err)
	}
	mustExec(t, pool, `INSERT INTO river_queue (name, updated_at) VALUES ('default', now())`)
	mustExec(t, pool, `INSERT INTO forge_pauses (queue, kind) SELECT 'default', i::text FROM generate_series(1, $1::int) AS i`, MaxJobPauses)
	if _, _, err := New(pool).PauseQueue(t.Context(), "default", order); !errors.Is(err, ErrManyPauses) {
		t.Errorf("one too many: %v", err)
	}
}
