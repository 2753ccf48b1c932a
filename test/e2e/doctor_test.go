package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// findings are what `forge doctor -o json` prints.
type findings []struct{ Check, Status, Detail, Remedy string }

func (f findings) has(check, status string, says ...string) bool {
	for _, line := range f {
		found := line.Check == check && line.Status == status
		for _, part := range says {
			found = found && strings.Contains(line.Detail+line.Remedy, part)
		}
		if found {
			return true
		}
	}
	return false
}

// fine reports whether every check is ok, except for two that judge the server: one for
// tests may not sync, and other tests make logins on it.
func (f findings) fine() bool {
	for _, line := range f {
		if line.Status != "ok" && line.Check != "storage" && line.Check != "logins" {
			return false
		}
	}
	return true
}

func (c *cluster) doctor() (findings, string, int) {
	c.t.Helper()
	out, errs, code := c.forge("doctor", "-o", "json", "--config", c.config)
	return decode[findings](c.t, out), errs, code
}

func TestDoctorOfALivingCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+unhurried)
	c.startAll("a", "b")
	c.leader(0)
	var found findings
	var code int
	eventually(t, "both nodes have reported, every role is led, and all is well", func() bool {
		found, _, code = c.doctor()
		return code == 0 && found.has("leaders", "ok", "scheduler") && found.has("leaders", "ok", "metrics_aggregator") &&
			found.has("leaders", "ok", "log_compactor") && found.has("clock", "ok", "2 nodes") && found.fine()
	})
	c.signal("a", syscall.SIGKILL)
	eventually(t, "the dead node is named", func() bool {
		found, _, _ = c.doctor()
		return found.has("nodes", "warn", "a on host", "dead") && found.has("leaders", "warn", "no other node could take over")
	})
	if table, _, code := c.forge("doctor", "--config", c.config); code != 0 || !strings.Contains(table, "warn") || !strings.Contains(table, "CHECK") {
		t.Errorf("the table exits with %d:\n%s", code, table)
	}
}

// Another program has the locks: nodes stand, nobody leads, and the doctor says who
// it is.
func TestDoctorNamesWhoHoldsTheLocks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "")
	parsed, err := pgx.ParseConfig(c.url)
	if err != nil {
		t.Fatal(err)
	}
	parsed.RuntimeParams["application_name"] = "billing"
	other, err := pgx.ConnectConfig(t.Context(), parsed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	if _, err := other.Exec(t.Context(), `SELECT pg_advisory_lock(x'464F5247450001'::bigint)`); err != nil {
		t.Fatal(err)
	}
	c.start("a")
	found, errs, code := c.doctor()
	if code != 1 || !strings.Contains(errs, "failed") {
		t.Errorf("it exits with %d: %s", code, errs)
	}
	if !found.has("lock ids", "fail", fmt.Sprintf("process %d", other.PgConn().PID()), `"billing"`, "cluster.lock_namespace") {
		t.Errorf("the holder is not named: %+v", found)
	}
	if !found.has("leaders", "fail", "nobody leads scheduler") {
		t.Errorf("the missing leader is not named: %+v", found)
	}
}

func TestDoctorExitCodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "[cluster.leader_election]\nlease_duration = \"1s\"\nrefresh_interval = \"2s\"\n")
	found, _, code := c.doctor()
	if code != 3 || !found.has("configuration", "fail", "lease runs out") {
		t.Errorf("a lease that cannot work: %d, %+v", code, found)
	}
	fine := filepath.Join(t.TempDir(), "fine.toml")
	if err := os.WriteFile(fine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, code := forgeWith(t, []string{"FORGE_DATABASE_URL=postgres://127.0.0.1:1/none"}, "doctor", "-o", "yaml", "--config", fine)
	if code != 5 || !strings.Contains(out, "status: fail") || !strings.Contains(out, "connection refused") {
		t.Errorf("an unreachable database: %d\n%s", code, out)
	}
	if _, errs, code := forgeWith(t, nil, "doctor", "--config", fine); code != 5 || !strings.Contains(errs, "no database") {
		t.Errorf("no database: %d %s", code, errs)
	}
}
