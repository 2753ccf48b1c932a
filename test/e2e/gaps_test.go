package e2e

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/chaos/checker"
	"github.com/forge-scheduler/forge/test/chaos/journal"
	"github.com/forge-scheduler/forge/test/chaos/prober"
)

// handOversEach is how often each of the three roles is handed over.
const handOversEach = 8

// slowCommitSQL has the commit of whoever gives a role up take a while, as a disk does:
// its lock is free by then, and the next leader may be there before the commit.
const slowCommitSQL = `
CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_sleep(0.03);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER slow_commit AFTER UPDATE ON forge_leaders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.node_id IS NOT NULL AND NEW.node_id IS NULL) EXECUTE FUNCTION slow_commit()`

// While every role is handed over again and again, the history has the gap before each
// term as it was, to within 50 ms.
func TestHistoryHasTheGapsOfHandOvers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+steady)
	if err := journal.Install(t.Context(), c.pool); err != nil {
		t.Fatal(err)
	}
	c.exec(slowCommitSQL)
	p := prober.Start(t.Context(), c.pool)
	t.Cleanup(func() { p.Stop() })
	c.startAll("a", "b", "c")
	c.awaitRoles("")
	address := c.nodes["a"].listen()
	var all sync.WaitGroup
	for _, role := range []string{"scheduler", "metrics_aggregator", "log_compactor"} {
		all.Go(func() {
			for range handOversEach {
				if !c.stepsDown(address, role) {
					return
				}
			}
		})
	}
	all.Wait()
	h, err := journal.Read(t.Context(), c.pool, "")
	if err != nil {
		t.Fatal(err)
	}
	h.Sightings = p.Stop()
	if h.Tenures, err = prober.Tenures(t.Context(), c.pool); err != nil {
		t.Fatal(err)
	}
	for _, finding := range checker.Check(&checker.History{Leads: h.Leads, Tenures: h.Tenures, Sightings: h.Sightings}) {
		t.Error(finding)
	}
	if seen := checker.SeenGaps(h); seen < 3*handOversEach {
		t.Errorf("%d gaps were seen; want %d", seen, 3*handOversEach)
	}
}

// stepsDown has a role's leader step down by the API, and waits for the next one.
func (c *cluster) stepsDown(address, role string) bool {
	const termSQL = `SELECT term FROM forge_leaders WHERE role = $1 AND node_id IS NOT NULL`
	deadline := time.Now().Add(time.Minute)
	var term int64
	asked := false
	for ; time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var now int64
		if c.pool.QueryRow(c.t.Context(), termSQL, role).Scan(&now) != nil {
			continue // nobody leads
		}
		if asked && now > term {
			return true
		}
		if !asked {
			term = now
			asked = postNothing(c.t, address, "/api/v1/leaders/"+role+"/step-down") == http.StatusAccepted
		}
	}
	c.t.Errorf("%s is not handed over", role)
	return false
}

// postNothing sends a request without a body and returns the code of the answer; 0: there was
// none.
func postNothing(t *testing.T, address, path string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+path, http.NoBody)
	if err != nil {
		t.Error(err)
		return 0
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}
