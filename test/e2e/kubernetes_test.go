package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/kubetest"
)

const (
	electByKubernetes = "strategy = \"kubernetes\"\n"
	schedulerLease    = "forge-scheduler-leader"
	thief             = "somebody"
	// A slow machine may cost a leader its lease; here leaders are to give no role up.
	handOversSQL = `SELECT count(*) FROM forge_leader_history WHERE end_reason IN ('resigned', 'stepped_down', 'transferred')`
	gaveUpSQL    = `SELECT count(*) FROM forge_leader_history WHERE role = 'scheduler' AND term >= $1 AND end_reason = 'stepped_down'`
)

// kubernetesCluster is a cluster whose leaders need Lease objects.
type kubernetesCluster struct {
	*cluster

	api *kubetest.Server // nil if it is a real one
	// kubeconfig makes a process a client of the API server; holder is who a Lease names.
	kubeconfig func(client string) string
	holder     func(lease string) string
}

func newKubernetesCluster(t *testing.T) *kubernetesCluster {
	t.Helper()
	api := kubetest.Start(t)
	return &kubernetesCluster{
		newCluster(t, everySecond+steady+electByKubernetes), api,
		func(client string) string { return api.KubeconfigOf(t, client) }, api.Holder,
	}
}

func (k *kubernetesCluster) env(client string) string { return "KUBECONFIG=" + k.kubeconfig(client) }

func (k *kubernetesCluster) startAll(ids ...string) {
	k.t.Helper()
	for _, id := range ids {
		k.startProgram(forgeBinary(k.t), id, k.env(id))
	}
}

// leader waits for a leader of the scheduler above a term that holds the Lease.
func (k *kubernetesCluster) leader(above int64) (id string, term int64) {
	k.t.Helper()
	id, term = k.cluster.leader(above)
	eventually(k.t, "the Lease names "+id, func() bool { return k.holder(schedulerLease) == id })
	return id, term
}

// The leaders are the holders of the Leases, through all ways in which a term ends. What happens to
// the API server costs no term, and no tick.
func TestLeasesOfKubernetesElect(t *testing.T) {
	t.Parallel()
	k := newKubernetesCluster(t)
	k.startAll("a", "b", "c")
	k.awaitRoles("")
	id, term := k.leader(0)

	target := other(id)
	if first := k.handsOver("leader", "transfer", "scheduler", "--to", target); first.NodeID != target {
		t.Errorf("transferred to %s, want %s", first.NodeID, target)
	}
	id, term = k.leader(term)
	k.awaitTicks(term)

	k.nodes[id].Kill()
	delete(k.nodes, id)
	id, term = k.leader(term)
	k.awaitTicks(term)

	k.awaitRoles("")
	before := k.number(handOversSQL)
	for _, broken := range []func(){
		func() { k.api.Refuse(http.StatusServiceUnavailable) },
		func() { k.api.Refuse(0); k.api.Delay(time.Hour) },
	} {
		broken()
		time.Sleep(steadyLease * 3 / 2)
	}
	k.api.Delay(0)
	time.Sleep(steadyLease * 3 / 2) // others could take the Leases
	if after := k.number(handOversSQL); after != before {
		t.Errorf("%d roles were handed over because the API server did not answer", after-before)
	}

	k.stop(id)
	_, term = k.leader(term)
	k.awaitTicks(term)
	k.stopAll()
	if holder := k.holder(schedulerLease); holder != "" {
		t.Errorf("all nodes have ended, and the Lease is that of %s", holder)
	}
	k.demandEveryTickOnce("second")
}

// A leader whose Lease is taken gives the role up, whether it can see that or not.
func TestLeaderWithoutItsLeaseHandsOver(t *testing.T) {
	t.Parallel()
	k := newKubernetesCluster(t)
	k.startAll("a", "b")
	_, term := k.leader(0)
	k.awaitTicks(term)

	k.api.Steal(schedulerLease, thief, 2*time.Second)
	eventually(t, "the leader hands over", func() bool { return k.number(gaveUpSQL, term) == 1 })
	id, term := k.leader(term)
	k.awaitTicks(term)

	k.api.Cut(id)
	k.api.Steal(schedulerLease, other(id), time.Hour)
	next, term := k.leader(term)
	if next != other(id) {
		t.Errorf("%s leads, the Lease is that of %s", next, other(id))
	}
	k.awaitTicks(term)
	k.api.Cut("")
	k.stopAll()
	k.demandEveryTickOnce("second")
}

// Who may not use Leases is told which rule is missing; nobody leads, and nothing else breaks.
func TestLeasesAreRefused(t *testing.T) {
	t.Parallel()
	k := newKubernetesCluster(t)
	k.api.Refuse(http.StatusForbidden)
	a := k.launchNode(forgeBinary(t), "a", k.env("a"))
	eventually(t, "the node says what is missing", func() bool {
		return strings.Contains(a.output.String(), "get, create and update for leases of coordination.k8s.io")
	})
	out, _, code := runToEnd(t, forgeBinary(t), []string{"FORGE_DATABASE_URL=" + k.url, k.env("doctor")}, "doctor", "--config", k.config)
	if code == 0 || !strings.Contains(out, "get, create and update for leases") {
		t.Errorf("forge doctor ends with %d and says %s", code, out)
	}
	k.api.Refuse(0)
	a.AwaitReady(t, a.output)
	k.awaitRoles("a")
	k.api.Steal(schedulerLease, thief, time.Hour)
	out, _, _ = runToEnd(t, forgeBinary(t), []string{"FORGE_DATABASE_URL=" + k.url, k.env("doctor")}, "doctor", "--config", k.config)
	if !strings.Contains(out, "held by "+thief) {
		t.Errorf("the Lease was stolen, and forge doctor says %s", out)
	}
	_, errs, code := runToEnd(t, forgeBinary(t), []string{"FORGE_DATABASE_URL=" + k.url}, "serve", "--config", k.config, "--node-id", "b")
	if code == 0 || !strings.Contains(errs, "KUBECONFIG") {
		t.Errorf("a node without an API server ends with %d and says %s", code, errs)
	}
}

// A program that is no node, such as a sidecar, needs the Lease of its role too, and gives it up.
func TestSidecarNeedsItsLease(t *testing.T) {
	t.Parallel()
	k := newKubernetesCluster(t)
	if _, errs, code := k.forge("migrate", "up"); code != 0 {
		t.Fatal(errs)
	}
	const nightlyLease = "forge-nightly-leader"
	dir := t.TempDir()
	start := func(id string) *process {
		return launch(t, []string{"FORGE_DATABASE_URL=" + k.url, k.env(id)}, "sidecar", "--config", k.config,
			"--role", "nightly", "--node-id", id, "--file", filepath.Join(dir, id))
	}
	leads := func(id string) {
		t.Helper()
		eventually(t, "the files and the Lease name "+id, func() bool {
			line, err := os.ReadFile(filepath.Join(dir, id))
			return err == nil && string(line) == id+"\n" && k.holder(nightlyLease) == id
		})
	}
	stolen := time.Now()
	k.api.Steal(nightlyLease, thief, 2*time.Second)
	a := start("a")
	leads("a")
	if took := time.Since(stolen); took < 2*time.Second {
		t.Errorf("a leads after %v, while somebody else held the Lease", took)
	}
	start("b")
	if err := a.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-a.done
	leads("b")
}

// Two clusters with one name, even with nodes of one id: the second gets no Lease of the first.
func TestClustersOfOneNameShareNoLease(t *testing.T) {
	t.Parallel()
	first := newKubernetesCluster(t)
	second := &kubernetesCluster{newCluster(t, everySecond+steady+electByKubernetes), first.api, first.kubeconfig, first.holder}
	first.startAll("a")
	_, term := first.leader(0)
	stranger := second.startProgram(forgeBinary(t), "a", second.env("b"))
	eventually(t, "the second cluster's node logs the reason", func() bool {
		return strings.Contains(stranger.output.String(), "give each cluster of a namespace its own cluster.name")
	})
	out, _, code := runToEnd(t, forgeBinary(t), []string{"FORGE_DATABASE_URL=" + second.url, second.env("doctor")}, "doctor", "--config", second.config)
	if code == 0 || !strings.Contains(out, "a cluster with another database") {
		t.Errorf("forge doctor ends with %d and says %s", code, out)
	}
	time.Sleep(steadyLease * 3 / 2)
	if leaders := second.number(`SELECT count(*) FROM forge_leader_history`); leaders != 0 {
		t.Errorf("the second cluster had %d leaders", leaders)
	}
	if _, now := first.leader(0); now != term {
		t.Errorf("the first cluster has term %d, had %d", now, term)
	}
	first.stopAll()
	second.leader(0)
}
