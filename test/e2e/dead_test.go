package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

const deadJobs = `
[node]
slots = 2
[jobs.broken]
kind = "shell"
command = ["false"]
retry = { max_attempts = 2, backoff = "100ms", max_backoff = "100ms", second_round = "1s" }
`

// A leader that dies in the transaction of a second round, or right after it,
// neither loses it nor has it given twice.
func TestSecondRoundSurvivesItsLeader(t *testing.T) {
	t.Parallel()
	program, orders := failpointBinary(t), t.TempDir()
	c := newCluster(t, deadJobs+unhurried)
	start := func(id string) {
		c.startProgram(program, id, "FORGE_FAILPOINTS=@"+filepath.Join(orders, id))
	}
	for _, id := range []string{"a", "b"} {
		start(id)
	}
	var term int64
	for _, strike := range []string{"deadletters/before-commit=kill", "deadletters/after-commit=kill"} {
		var leader string
		leader, term = c.leader(term)
		rewrite(t, filepath.Join(orders, leader), strike)
		job := c.enqueue("broken")
		c.awaitStrike(leader, strike, term)
		start(leader)
		eventually(t, "job "+job+" has used up its second round", func() bool {
			return c.number(`SELECT count(*) FROM river_job WHERE id = $1::text::bigint AND state = 'discarded' AND attempt = 4
				AND metadata #>> '{forge:dead,attempt}' = '4' AND NOT metadata -> 'forge:dead' ? 'second_round'`, job) == 1
		})
		if n := c.number(`SELECT count(*) FROM forge_events WHERE type = 'second_rounds_given' AND data -> 'ids' @> $1::text::jsonb`, job); n != 1 {
			t.Errorf("the event log has %d second rounds of job %s, want 1", n, job)
		}
		if n := c.number(`SELECT count(*) FROM river_job WHERE id = $1::text::bigint AND max_attempts = 4`, job); n != 1 {
			t.Errorf("job %s was granted more than two attempts twice", job)
		}
	}
	address, group := c.nodes["a"].listen(), jobstore.Fingerprint("broken", "exit status 1")
	for _, path := range []string{"/dead", "/dead/" + group, "/api/v1/dead", "/api/v1/dead/" + group} {
		if code, body, _ := get(address, path); code != 200 || !strings.Contains(string(body), "exit status 1") {
			t.Errorf("GET %s: %d\n%s", path, code, body)
		}
	}
	if code, body := post(t, address, "/api/v1/bulk/dead/discard", `{"group": "`+group+`"}`); code != 200 || !strings.Contains(body, `"changed":2`) {
		t.Errorf("discard: %d %s", code, body)
	}
	if _, body, _ := get(address, "/dead"); !strings.Contains(string(body), "No dead letters.") {
		t.Error("the page lists what was discarded")
	}
}

// The commands for dead letters speak to the database alone.
func TestDeadCommands(t *testing.T) {
	t.Parallel()
	c := newCluster(t, deadJobs)
	c.exec(`INSERT INTO river_job (kind, args, state, attempt, max_attempts, finalized_at, errors)
		SELECT 'broken', '{}', 'discarded', 2, 2, now() - i * interval '1 hour', ARRAY[jsonb_build_object('error', 'row ' || i || ' is bad')]
		FROM generate_series(1, 5) i`)
	c.exec(`UPDATE river_job SET unique_key = 'k', unique_states = B'11110101' WHERE id = 5;
		INSERT INTO river_job (kind, args, state, max_attempts, unique_key, unique_states) VALUES ('broken', '{}', 'available', 2, 'k', B'11110101')`)
	group := jobstore.Fingerprint("broken", "row 1 is bad")

	c.demand(0, group, "dead", "list")
	c.demand(0, "row 1 is bad", "dead", "list", "--kind", "broken", "-o", "wide")
	c.demand(0, "row 5 is bad", "dead", "list", group)
	groups := decode[[]jobstore.DeadGroup](t, c.demand(0, "", "dead", "list", "-o", "json"))
	if len(groups) != 1 || groups[0].Jobs != 5 || groups[0].Group != group {
		t.Errorf("groups: %+v", groups)
	}
	letters := decode[[]jobstore.DeadLetter](t, c.demand(0, "", "dead", "list", "--jobs", "--older-than", "150m", "--newer-than", "270m", "-o", "json"))
	if len(letters) != 2 || letters[0].ID != 4 || letters[1].ID != 3 {
		t.Errorf("letters: %+v", letters)
	}

	c.demand(0, "would retry 5 jobs", "dead", "retry", group, "--dry-run")
	c.demand(2, "Confirmation needs a terminal", "dead", "retry", group)
	c.demand(2, "which dead letters?", "dead", "discard")
	c.demand(2, "--all cannot be combined", "dead", "discard", "--all", "--kind", "broken")
	c.demand(2, "--older-than soon: want a duration", "dead", "discard", "--older-than", "soon")
	c.demand(2, "want ids of jobs, or one group", "dead", "discard", "1", group)
	c.demand(4, "no dead letters in the group d0123456789", "dead", "list", "d0123456789")
	c.demand(4, "no dead letters in the group d0123456789", "dead", "retry", "d0123456789", "--yes")

	c.demand(4, "no dead letters: [99]", "dead", "retry", "1", "99")
	c.demand(4, "no dead letters: [1]", "dead", "retry", "1")
	c.demand(6, "1 job left alone: another job holds the unique key", "dead", "retry", "5")
	c.demand(0, "discarded 1 job", "dead", "discard", "5")
	c.demand(0, "discarded 2 jobs", "dead", "discard", "--error", "BAD", "--older-than", "150m", "--yes")
	if out := c.demand(0, "", "dead", "retry", "--all", "--yes", "-o", "json"); decode[struct{ Changed int }](t, out).Changed != 1 {
		t.Errorf("retried %s", out)
	}
	if left := decode[[]jobstore.DeadLetter](t, c.demand(0, "", "dead", "list", "--jobs", "-o", "json")); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}
