package jobstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/filter"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// insertDead adds seven jobs of which five are dead letters: three of one group,
// the newest of which is not recorded, one with another error and one of another
// kind.
func insertDead(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for i, job := range []struct {
		kind, failure string
		age           time.Duration
		marked        bool
		max           int
	}{
		{"mail", "host 1 is down", 5 * time.Hour, true, 3},
		{"mail", "host 2 is down", 4 * time.Hour, true, 3},
		{"mail", "host 3 is down", time.Hour, false, 3},
		{"mail", "100% broken", 3 * time.Hour, true, 3},
		{"call", "host 4 is down", 2 * time.Hour, true, 3},
		{"mail", "host 5 is down", time.Hour, false, 4}, // discarded by hand
		{"mail", "host 6 is down", time.Hour, true, 3},  // discarded as a dead letter, below
	} {
		metadata := "{}"
		if job.marked {
			metadata = fmt.Sprintf(`{"forge:dead": {"attempt": 3, "group": %q, "second_round": "2099-01-0%dT00:00:00.000000Z"}}`,
				jobstore.Fingerprint(job.kind, job.failure), i+1)
		}
		exec(t, pool, `INSERT INTO river_job (id, kind, args, state, attempt, max_attempts, metadata, errors, attempted_by, finalized_at)
			VALUES ($1, $2, '{}', 'discarded', 3, $3, $4, ARRAY[jsonb_build_object('error', $5::text)], '{n-1-00000000000000aa}', now() - make_interval(secs => $6))`,
			i+1, job.kind, job.max, metadata, job.failure, job.age.Seconds())
	}
	exec(t, pool, `SELECT setval('river_job_id_seq', 100)`)
	exec(t, pool, `UPDATE river_job SET metadata = jsonb_set(metadata, '{forge:dead,discarded_at}', '"now"') WHERE id = 7`)
}

func deadIDs(t *testing.T, pool *pgxpool.Pool, filter jobstore.DeadFilter) (ids []int64) {
	t.Helper()
	letters, err := jobstore.New(pool).DeadLetters(t.Context(), filter, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		ids = append(ids, l.ID)
	}
	return ids
}

func deadWhere(t *testing.T, text string) *filter.Filter {
	t.Helper()
	parsed, err := filter.Parse(text, jobstore.DeadKeys)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

var downGroup = jobstore.Fingerprint("mail", "host 1 is down")

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertDead(t, pool)
	for _, test := range []struct {
		name   string
		filter jobstore.DeadFilter
		want   []int64
	}{
		{"all", jobstore.DeadFilter{}, []int64{5, 4, 3, 2, 1}},
		{"a group, with one that is not recorded", jobstore.DeadFilter{Group: downGroup}, []int64{3, 2, 1}},
		{"a group of which there is none", jobstore.DeadFilter{Group: "d0000000000"}, nil},
		{"a kind", jobstore.DeadFilter{Kind: "call"}, []int64{5}},
		{"a text", jobstore.DeadFilter{Error: "HOST"}, []int64{5, 3, 2, 1}},
		{"a text that is no pattern", jobstore.DeadFilter{Error: "0%"}, []int64{4}},
		{"old ones", jobstore.DeadFilter{OlderThan: 210 * time.Minute}, []int64{2, 1}},
		{"new ones", jobstore.DeadFilter{NewerThan: 150 * time.Minute}, []int64{5, 3}},
		{"between", jobstore.DeadFilter{NewerThan: 270 * time.Minute, OlderThan: 150 * time.Minute}, []int64{4, 2}},
		{"ids", jobstore.DeadFilter{IDs: []int64{7, 6, 5, 1, 99}}, []int64{5, 1}},
		{"ids of a kind", jobstore.DeadFilter{IDs: []int64{5, 1}, Kind: "mail"}, []int64{1}},
		{"no ids", jobstore.DeadFilter{IDs: []int64{}}, nil},
		{"terms", jobstore.DeadFilter{Where: deadWhere(t, "kind:m* error:host since:270m")}, []int64{3, 2}},
		{"terms of two kinds", jobstore.DeadFilter{Where: deadWhere(t, "kind:mail kind:call until:90m")}, []int64{5, 4, 2, 1}},
		{"terms in a group", jobstore.DeadFilter{Group: downGroup, Where: deadWhere(t, "node:n-1 until:2h")}, []int64{2, 1}},
		{"terms that none matches", jobstore.DeadFilter{Where: deadWhere(t, "kind:mail node:n")}, nil},
	} {
		if diff := cmp.Diff(test.want, deadIDs(t, pool, test.filter)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	page, err := jobstore.New(pool).DeadLetters(t.Context(), jobstore.DeadFilter{}, 4, 2)
	if err != nil || len(page) != 2 || page[0].ID != 3 || page[1].ID != 2 {
		t.Fatalf("the second page: %+v, %v", page, err)
	}
	if l := page[0]; l.Group != downGroup || l.Error != "host 3 is down" || l.NodeID != "n-1" || l.Attempt != 3 || !l.SecondRound.IsZero() {
		t.Errorf("one that is not recorded: %+v", l)
	}
	if l := page[1]; l.Group != downGroup || l.SecondRound.Format(time.DateOnly) != "2099-01-02" {
		t.Errorf("one that is recorded: %+v", l)
	}
}

// The dead letters of a job that kills its nodes list these nodes. Invalid metadata
// from other programs does no harm.
func TestDeadLetterNamesLostNodes(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertDead(t, pool)
	exec(t, pool, `UPDATE river_job SET metadata = metadata || '{
		"forge:attempt:2": {"attempt": 2, "node_id": "n-2", "outcome": "lost", "error": "node lost: b", "started_at": "2026-11-20T16:00:02Z"},
		"forge:attempt:1": {"attempt": 1, "node_id": "n-1", "outcome": "lost", "error": "node lost: a", "started_at": "2026-11-20T16:00:01Z"},
		"forge:attempt:3": {"attempt": 3, "node_id": "n-3", "outcome": "failed"},
		"forge:attempt:4": {"attempt": "x", "outcome": "lost"}, "forge:attempt:5": 7}' WHERE id = 1`)
	letters, err := jobstore.New(pool).DeadLetters(t.Context(), jobstore.DeadFilter{IDs: []int64{1, 2}}, 0, 10)
	if err != nil || len(letters) != 2 {
		t.Fatalf("letters %+v, %v", letters, err)
	}
	at := time.Date(2026, 11, 20, 16, 0, 1, 0, time.UTC)
	want := []jobstore.LostAttempt{
		{Attempt: 1, NodeID: "n-1", StartedAt: at, Error: "node lost: a"},
		{Attempt: 2, NodeID: "n-2", StartedAt: at.Add(time.Second), Error: "node lost: b"},
	}
	if diff := cmp.Diff(want, letters[1].Lost); diff != "" || len(letters[0].Lost) != 0 {
		t.Errorf("lost attempts (-want +got):\n%s; of another: %+v", diff, letters[0].Lost)
	}
	letter := jobstore.DeadLetter{Lost: append(want, jobstore.LostAttempt{Attempt: 3, NodeID: "n-1"})}
	if got := letter.LostNodes(); got != "n-1 (2 times), n-2" {
		t.Errorf("lost nodes: %s", got)
	}
	if got := letters[1].HowLost(); got != "attempt 1 on n-1: node lost: a; attempt 2 on n-2: node lost: b" {
		t.Errorf("how they were lost: %s", got)
	}
}

// Any program may have written the metadata of a job: it hides no other dead letter.
func TestDeadLetterWithUnreadableAttempts(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertDead(t, pool)
	exec(t, pool, `UPDATE river_job SET metadata = metadata || '{
		"forge:attempt:1": {"outcome": "lost", "attempt": 1.5}, "forge:attempt:2": {"outcome": "lost", "attempt": 1e40}}' WHERE id = 1`)
	if got := deadIDs(t, pool, jobstore.DeadFilter{}); len(got) != 5 {
		t.Errorf("dead letters %v, want five", got)
	}
}

func TestDeadGroups(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertDead(t, pool)
	show := func(filter jobstore.DeadFilter) (shown []string) {
		groups, err := jobstore.New(pool).DeadGroups(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range groups {
			hours := func(at time.Time) float64 { return time.Since(at).Round(time.Hour).Hours() }
			shown = append(shown, fmt.Sprintf("%s %s %d jobs, %v to %v hours ago, newest %d: %s; again %s",
				g.Group, g.Kind, g.Jobs, hours(g.First), hours(g.Last), g.NewestJob, g.Error, g.SecondRound.Format(time.DateOnly)))
		}
		return shown
	}
	mail := downGroup + " mail 3 jobs, 5 to 1 hours ago, newest 3: host 3 is down; again 2099-01-01"
	call := jobstore.Fingerprint("call", "host 4 is down") + " call 1 jobs, 2 to 2 hours ago, newest 5: host 4 is down; again 2099-01-05"
	broken := jobstore.Fingerprint("mail", "100% broken") + " mail 1 jobs, 3 to 3 hours ago, newest 4: 100% broken; again 2099-01-04"
	if diff := cmp.Diff([]string{mail, call, broken}, show(jobstore.DeadFilter{})); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{mail, call}, show(jobstore.DeadFilter{Where: deadWhere(t, "error:host*down")})); diff != "" {
		t.Errorf("by terms (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{call, broken}, show(jobstore.DeadFilter{OlderThan: 90 * time.Minute, NewerThan: 200 * time.Minute})); diff != "" {
		t.Errorf("by age (-want +got):\n%s", diff)
	}
	exec(t, pool, `UPDATE river_job SET metadata = '{}'`) // there was no leader for a long time
	want := []string{
		downGroup + " mail 4 jobs, 5 to 1 hours ago, newest 7: host 6 is down; again 0001-01-01",
		jobstore.Fingerprint("call", "host 4 is down") + " call 1 jobs, 2 to 2 hours ago, newest 5: host 4 is down; again 0001-01-01",
	}
	if diff := cmp.Diff(want, show(jobstore.DeadFilter{Error: "host"})); diff != "" {
		t.Errorf("without a leader (-want +got):\n%s", diff)
	}
}

func actOnDead(t *testing.T, pool *pgxpool.Pool, action jobstore.Action, filter jobstore.DeadFilter) (int64, int) {
	t.Helper()
	counted, err := jobstore.New(pool).CountDead(t.Context(), filter, jobstore.Matching{})
	if err != nil {
		t.Fatal(err)
	}
	changed, err := jobstore.New(pool).ActOnDead(t.Context(), jobstore.Order{Action: action, By: "ann"}, filter, counted)
	if err != nil {
		t.Fatal(err)
	}
	return counted.Jobs, changed
}

func TestDiscardDead(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertDead(t, pool)
	if jobs, changed := actOnDead(t, pool, jobstore.Discard, jobstore.DeadFilter{Group: downGroup}); jobs != 3 || changed != 3 {
		t.Errorf("discarded %d of %d, want 3 of 3", changed, jobs)
	}
	if diff := cmp.Diff([]int64{5, 4}, deadIDs(t, pool, jobstore.DeadFilter{})); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	var marks, events string
	err := pool.QueryRow(t.Context(), `SELECT
		(SELECT string_agg(format('%s %s %s %s', state, metadata #>> '{forge:dead,attempt}', metadata #>> '{forge:dead,discarded_by}', metadata -> 'forge:dead' ? 'second_round'), ', ')
		 FROM river_job WHERE id < 4),
		(SELECT string_agg(type || ' ' || data::text, ', ') FROM forge_events)`).Scan(&marks, &events)
	if err != nil {
		t.Fatal(err)
	}
	if want := "discarded 3 ann f, discarded 3 ann f, discarded 3 ann f"; marks != want {
		t.Errorf("the jobs are %q, want %q", marks, want)
	}
	if want := `dead_letters_discarded {"by": "ann", "ids": [1, 2, 3], "jobs": 3}`; events != want {
		t.Errorf("the event log has %q, want %q", events, want)
	}
	// A job that is retried and fails for good again is listed again.
	exec(t, pool, `UPDATE river_job SET attempt = 4, max_attempts = 4 WHERE id IN (2, 3)`)
	if diff := cmp.Diff([]int64{5, 4, 3, 2}, deadIDs(t, pool, jobstore.DeadFilter{})); diff != "" {
		t.Errorf("after another death (-want +got):\n%s", diff)
	}
}

func TestRetryDead(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertDead(t, pool)
	exec(t, pool, `UPDATE river_job SET unique_key = 'k', unique_states = B'11110101' WHERE id = 4`)
	exec(t, pool, `INSERT INTO river_job (kind, args, state, max_attempts, unique_key, unique_states) VALUES ('rival', '{}', 'available', 3, 'k', B'11110101')`)
	counted, err := jobstore.New(pool).CountDead(t.Context(), jobstore.DeadFilter{Kind: "mail"}, jobstore.Matching{})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `UPDATE river_job SET id = 50 WHERE id = 3`) // failed after it was counted
	changed, err := jobstore.New(pool).ActOnDead(t.Context(), jobstore.Order{Action: jobstore.Retry, By: "ann"}, jobstore.DeadFilter{Kind: "mail"}, counted)
	if err != nil || counted.Jobs != 4 || changed != 2 {
		t.Errorf("retried %d of %d, want 2 of 4: %v", changed, counted.Jobs, err)
	}
	if diff := cmp.Diff([]int64{50, 5, 4}, deadIDs(t, pool, jobstore.DeadFilter{})); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	job, err := jobstore.New(pool).Get(t.Context(), 1)
	if err != nil || job.State != "available" || job.MaxAttempts != 4 || !job.FinalizedAt.IsZero() {
		t.Errorf("job 1: %+v, %v", job, err)
	}
	if _, err := jobstore.New(pool).ActOnDead(t.Context(), jobstore.Order{Action: jobstore.Cancel}, jobstore.DeadFilter{}, counted); err == nil {
		t.Error("dead letters were cancelled")
	}
}

// A job that was there when the dead letters were counted, but died later, is not changed.
func TestActOnCountedDead(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insertDead(t, pool)
	exec(t, pool, `UPDATE river_job SET state = 'running', finalized_at = NULL WHERE id = 2`)
	store, all := jobstore.New(pool), jobstore.DeadFilter{Kind: "mail"}
	counted, err := store.CountDead(t.Context(), all, jobstore.Matching{})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, `UPDATE river_job SET state = 'discarded', finalized_at = clock_timestamp() WHERE id = 2`)
	if again, err := store.CountDead(t.Context(), all, counted); err != nil || again.Jobs != 3 {
		t.Errorf("counted %d again, want 3: %v", again.Jobs, err)
	}
	changed, err := store.ActOnDead(t.Context(), jobstore.Order{Action: jobstore.Discard, By: "ann"}, all, counted)
	if err != nil || counted.Jobs != 3 || changed != 3 {
		t.Errorf("discarded %d of %d, want 3 of 3: %v", changed, counted.Jobs, err)
	}
	if diff := cmp.Diff([]int64{5, 2}, deadIDs(t, pool, jobstore.DeadFilter{})); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestDeadInBatches(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	exec(t, pool, `INSERT INTO river_job (kind, args, state, attempt, max_attempts, finalized_at)
		SELECT 'k', '{}', 'discarded', 1, 1, now() FROM generate_series(1, 1201)`)
	group := jobstore.Fingerprint("k", "")
	for _, action := range []jobstore.Action{jobstore.Discard, jobstore.Retry} {
		jobs, changed := actOnDead(t, pool, action, jobstore.DeadFilter{Group: group})
		if jobs != 1201 || changed != 1201 {
			t.Errorf("%s %d of %d", action, changed, jobs)
		}
		exec(t, pool, `UPDATE river_job SET metadata = '{}'`)
	}
}

func TestIsDeadGroup(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{downGroup: true, "d28cfe5c16a": true, "28cfe5c16ad": false, "d28cfe5c16": false, "d28cfe5c16A": false, "dump": false} {
		if jobstore.IsDeadGroup(text) != want {
			t.Errorf("IsDeadGroup(%q) = %v", text, !want)
		}
	}
}
