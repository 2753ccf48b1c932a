package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/forge-scheduler/forge/internal/incident"
	"github.com/forge-scheduler/forge/test/nodes"
)

// After a leader is killed, commands and the API report what that did. The takeover delay
// makes ticks fall due while nobody fires them.
func TestIncidentOfAKilledLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+patient+`
[cluster.leader_election.roles.scheduler]
takeover_delay = "2500ms"

[jobs.long]
kind = "shell"
command = ["sh", "-c", "if [ $FORGE_ATTEMPT = 1 ]; then exec sleep 2718.`+unique()+`; fi"]
`)
	c.start("a")
	_, term := c.leader(0)
	c.startProgram(forgeBinary(t), "b", allRoles)
	c.must("job", "enqueue", "long")
	eventually(t, "the job runs", func() bool {
		return c.number(`SELECT count(*) FROM river_job WHERE kind = 'long' AND state = 'running'`) == 1
	})
	job := c.number(`SELECT id FROM river_job WHERE kind = 'long'`)
	c.awaitTicks(term)
	c.signal("a", syscall.SIGKILL)
	c.leader(term)

	var i incident.Incident
	read := func() bool {
		i = decode[incident.Incident](t, c.must("leader", "incident", "scheduler", strconv.FormatInt(term+1, 10), "-o", "json"))
		return i.Jobs.Rescued > 0 && i.FirstTick != nil
	}
	eventually(t, "the job is rescued and a tick fired", read)
	if i.Kind != incident.Failover || i.Old.NodeID != "a" || i.Old.EndReason != "crashed" || i.NodeID != "b" || i.Gap() <= 0 {
		t.Errorf("who and why: %s of %+v by %s, gap %v", i.Kind, i.Old, i.NodeID, i.Gap())
	}
	if i.DetectedAt.Before(i.Old.EndedAt) || i.ElectionAt.Before(i.DetectedAt) || i.ElectedAt.Before(i.ElectionAt) || i.FirstTick.RecordedAt.Before(i.ElectedAt) {
		t.Errorf("ended %v, noticed %v, election %v, elected %v, first tick %v", i.Old.EndedAt, i.DetectedAt, i.ElectionAt, i.ElectedAt, i.FirstTick.RecordedAt)
	}
	if i.Ticks.Count < 2 || i.Ticks.WorstMS < 1000 || len(i.Ticks.Items) == 0 || i.Ticks.Items[0].LatenessMS != i.Ticks.WorstMS {
		t.Errorf("delayed ticks: %+v", i.Ticks)
	}
	// A cron's job may have run at that moment, too.
	ids := strings.Trim(strings.ReplaceAll(fmt.Sprint(i.Jobs.IDs), " ", ","), "[]")
	ranOnA := c.number(`SELECT count(*) FROM river_job WHERE id IN (` + ids + `) AND attempted_by[1] LIKE 'a-%'`)
	if !slices.Contains(i.Jobs.IDs, job) || i.Jobs.Rescued != len(i.Jobs.IDs) || ranOnA != int64(len(i.Jobs.IDs)) || i.Jobs.Orphaned != 0 || i.Old.Process != "dead" {
		t.Errorf("jobs %+v, process %s", i.Jobs, i.Old.Process)
	}
	if !i.Lost.Nothing || i.Lost.Ticks.Ticks == 0 {
		t.Errorf("lost: %+v of %+v", i.Lost, i.Lost.Ticks)
	}

	path := fmt.Sprintf("/api/v1/leaders/scheduler/incidents/%d", term+1)
	eventually(t, "the API has the summary of the command", func() bool { // a late tick between the two changes it
		var served incident.Incident
		err := nodes.Read(t.Context(), c.nodes["b"].listen(), path, &served)
		return read() && err == nil && served.Summary == i.Summary
	})
	if out, _, code := c.forge("leader", "incident", "scheduler", "99"); code != 4 {
		t.Errorf("a term that there is not: exit %d\n%s", code, out)
	}
	if out, _, code := c.forge("leader", "incident", "scheduler", "x"); code != 2 {
		t.Errorf("no term at all: exit %d\n%s", code, out)
	}
}
