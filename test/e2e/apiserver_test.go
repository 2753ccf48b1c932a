//go:build kubernetes

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	"sigs.k8s.io/yaml"

	"github.com/forge-scheduler/forge/test/parts"
)

const (
	// apiServerEnv names the program of the API server, operatorEnv the directory of the source of
	// the Prometheus operator.
	apiServerEnv = "FORGE_TEST_KUBE_APISERVER"
	operatorEnv  = "FORGE_TEST_PROMETHEUS_OPERATOR"

	kubernetesNamespace = "jobs"
	leasesPath          = "/apis/coordination.k8s.io/v1/namespaces/" + kubernetesNamespace + "/leases/"
)

// apiServer is a real API server with a namespace.
type apiServer struct {
	*parts.Kubernetes

	t *testing.T
}

func startAPIServer(t *testing.T) *apiServer {
	t.Helper()
	started, err := parts.StartKubernetes(t.Context(), t.TempDir(), os.Getenv(apiServerEnv))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(started.Stop)
	s := &apiServer{started, t}
	s.must(http.MethodPost, "/api/v1/namespaces", "application/json", `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+kubernetesNamespace+`"}}`)
	return s
}

// must demands that the API server accepts a request.
func (s *apiServer) must(method, path, contentType, body string) []byte {
	s.t.Helper()
	status, answer, err := s.Do(s.t.Context(), method, path, contentType, []byte(body))
	if err != nil || status >= http.StatusBadRequest {
		s.t.Fatalf("%s %s: %d, %v: %s\n%s", method, path, status, err, answer, body)
	}
	return answer
}

// collections are the paths of objects by their kinds.
var collections = map[string]string{
	"ConfigMap":                "/api/v1/namespaces/%s/configmaps/",
	"CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/%.0s",
	"Deployment":               "/apis/apps/v1/namespaces/%s/deployments/",
	"NetworkPolicy":            "/apis/networking.k8s.io/v1/namespaces/%s/networkpolicies/",
	"Pod":                      "/api/v1/namespaces/%s/pods/",
	"PodDisruptionBudget":      "/apis/policy/v1/namespaces/%s/poddisruptionbudgets/",
	"Role":                     "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/roles/",
	"RoleBinding":              "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/rolebindings/",
	"Service":                  "/api/v1/namespaces/%s/services/",
	"ServiceAccount":           "/api/v1/namespaces/%s/serviceaccounts/",
	"ServiceMonitor":           "/apis/monitoring.coreos.com/v1/namespaces/%s/servicemonitors/",
}

// apply applies an object as kubectl apply --server-side does, with a strict reading of its fields.
func (s *apiServer) apply(text, query string) {
	s.t.Helper()
	var head struct {
		Kind     string
		Metadata struct{ Name string }
	}
	if err := yaml.Unmarshal([]byte(text), &head); err != nil {
		s.t.Fatalf("%v\n%s", err, text)
	}
	collection, ok := collections[head.Kind]
	if !ok {
		s.t.Fatalf("an object of an unknown kind %q\n%s", head.Kind, text)
	}
	path := fmt.Sprintf(collection, kubernetesNamespace) + head.Metadata.Name + "?fieldManager=test&fieldValidation=Strict" + query
	s.must(http.MethodPatch, path, "application/apply-patch+yaml", text)
}

func manifestsOf(t *testing.T, file string) []string {
	t.Helper()
	return strings.Split(deployFile(t, file), "\n---\n")
}

// The API server accepts all objects of the manifests and of the chart.
func TestAPIServerAcceptsAllObjects(t *testing.T) {
	t.Parallel()
	s := startAPIServer(t)
	definitions, err := os.ReadFile(filepath.Join(os.Getenv(operatorEnv), "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s.apply(string(definitions), "")
	eventually(t, "ServiceMonitors are known", func() bool {
		status, _, err := s.Do(t.Context(), http.MethodGet, fmt.Sprintf(collections["ServiceMonitor"], kubernetesNamespace), "", nil)
		return err == nil && status == http.StatusOK
	})
	s.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}", "") // pods need it

	render := exec.CommandContext(t.Context(), "go", "-C", "../../tools/chart", "run", ".", "-print", "../../deploy/helm/forge")
	render.Stderr = os.Stderr
	out, err := render.Output()
	if err != nil {
		t.Fatal(err)
	}
	var objects []string
	if err := json.Unmarshal(out, &objects); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"forge", "sidecar", "leases"} {
		objects = append(objects, manifestsOf(t, "deploy/kubernetes/"+file+".yaml")...)
	}
	for _, object := range objects {
		s.apply(object, "&dryRun=All&force=true")
	}
	if len(objects) < 20 {
		t.Errorf("%d objects; want those of the chart's variants and of the manifests", len(objects))
	}
	status, answer, err := s.Do(t.Context(), http.MethodPatch, fmt.Sprintf(collections["Service"], kubernetesNamespace)+"wrong?fieldManager=test&fieldValidation=Strict&dryRun=All",
		"application/apply-patch+yaml", []byte("{apiVersion: v1, kind: Service, metadata: {name: wrong}, spec: {prots: [{port: 1}]}}"))
	if err != nil || status < http.StatusBadRequest {
		t.Errorf("a field that Kubernetes does not have was accepted: %d, %s, %v", status, answer, err)
	}
}

// newRealCluster is a cluster whose nodes are a service account of a real API server.
func newRealCluster(t *testing.T) (*kubernetesCluster, *apiServer) {
	t.Helper()
	s := startAPIServer(t)
	s.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: forge}}", "")
	kubeconfig, err := s.Kubeconfig(t.Context(), kubernetesNamespace, "forge")
	if err != nil {
		t.Fatal(err)
	}
	k := &kubernetesCluster{
		cluster: newCluster(t, everySecond+steady+electByKubernetes), kubeconfig: func(string) string { return kubeconfig }, holder: s.holder,
	}
	return k, s
}

func (s *apiServer) holder(name string) string {
	status, answer, err := s.Do(s.t.Context(), http.MethodGet, leasesPath+name, "", nil)
	var lease coordination.Lease
	if err != nil || status != http.StatusOK || json.Unmarshal(answer, &lease) != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// steal gives the scheduler's Lease to somebody, by a clock that is wrong.
func (s *apiServer) steal(holder string, lasts, clock time.Duration) {
	s.t.Helper()
	now := time.Now().Add(clock).UTC().Format("2006-01-02T15:04:05.000000Z")
	s.must(http.MethodPatch, leasesPath+schedulerLease, "application/merge-patch+json",
		fmt.Sprintf(`{"spec": {"holderIdentity": %q, "leaseDurationSeconds": %d, "acquireTime": %q, "renewTime": %q}}`, holder, int(lasts.Seconds()), now, now))
}

// The nodes elect by Leases of the real API server, through its faults.
func TestAPIServerElects(t *testing.T) {
	t.Parallel()
	k, s := newRealCluster(t)
	a := k.startNode("a")
	eventually(t, "the node says which rule is missing", func() bool {
		return strings.Contains(a.output.String(), "get, create and update for leases of coordination.k8s.io")
	})
	for _, object := range manifestsOf(t, "deploy/kubernetes/leases.yaml") {
		s.apply(object, "&force=true")
	}
	k.awaitRoles("a")
	k.startAll("b", "c")
	id, term := k.leader(0)

	k.nodes[id].Kill()
	delete(k.nodes, id)
	_, term = k.leader(term)
	k.awaitRoles("")

	before := k.number(handOversSQL)
	if err := s.API.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * steadyLease)
	if err := s.API.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * steadyLease)
	s.API.Kill()
	time.Sleep(2 * steadyLease)
	if err := s.API.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server answers again", func() bool { return s.holder(schedulerLease) != "" })
	time.Sleep(2 * steadyLease)
	if after := k.number(handOversSQL); after != before {
		t.Errorf("%d roles were handed over because the API server did not answer", after-before)
	}

	for _, clock := range []time.Duration{-time.Hour, time.Hour} {
		lasts := 3 * time.Second
		stolen := time.Now()
		s.steal(thief, lasts, clock)
		next, after := k.leader(term)
		if took := time.Since(stolen); took < lasts {
			t.Errorf("%s leads %v after the Lease was taken for %v", next, took, lasts)
		}
		if n := k.number(gaveUpSQL, term); n < 1 {
			t.Error("the leader whose Lease was taken did not hand over")
		}
		term = after
	}
	if n := k.number(`SELECT count(*) FROM forge_leader_history h JOIN forge_leader_history o USING (role) WHERE h.term < o.term AND h.ended_at > o.acquired_at`); n != 0 {
		t.Errorf("%d terms overlap", n)
	}
	k.awaitTicks(term)
	k.stopAll()
	k.demandEveryTickOnce("second")
}

func (k *kubernetesCluster) startNode(id string) *process {
	k.t.Helper()
	return k.launchNode(forgeBinary(k.t), id, k.env(id))
}
