package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// deployment is what the files in deploy/ say of how forge is run.
type deployment struct {
	name  string
	args  []string      // of the program
	ports []string      // by which it is reached
	grace time.Duration // between SIGTERM and SIGKILL

	environment map[string]string // as written, with references to the .env file
}

// container is what this test reads of a Kubernetes container.
type container struct {
	Name                                        string
	Args                                        []string
	Ports                                       []struct{ ContainerPort int }
	StartupProbe, LivenessProbe, ReadinessProbe struct{ HTTPGet struct{ Path, Port string } }
	Env                                         []struct{ Name string }
}

// manifest is what it reads of any object.
type manifest struct {
	Kind     string
	Metadata struct{ Labels map[string]string }
	Data     map[string]string
	Spec     struct {
		Replicas       int
		MaxUnavailable *int
		Selector       any
		Template       struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				TerminationGracePeriodSeconds int
				Containers                    []container
			}
		}
	}
}

func deployFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	found := map[string]manifest{}
	for text := range strings.SplitSeq(deployFile(t, "deploy/kubernetes/forge.yaml"), "\n---\n") {
		var m manifest
		if err := yaml.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		found[m.Kind] = m
	}
	return found
}

func kubernetes(t *testing.T) deployment {
	t.Helper()
	pod := manifests(t)["Deployment"].Spec.Template.Spec
	c := pod.Containers[0]
	return deployment{
		name: "Kubernetes", args: c.Args, ports: []string{fmt.Sprint(c.Ports[0].ContainerPort)},
		grace: time.Duration(pod.TerminationGracePeriodSeconds) * time.Second,
	}
}

func compose(t *testing.T) []deployment {
	t.Helper()
	var file struct {
		Services map[string]struct {
			Image          string
			Grace          string `json:"stop_grace_period"`
			Command, Ports []string
			Environment    map[string]string
		}
	}
	if err := yaml.Unmarshal([]byte(deployFile(t, "deploy/docker/compose.yml")), &file); err != nil {
		t.Fatal(err)
	}
	var found []deployment
	for name, service := range file.Services {
		if service.Image != "forge" {
			continue
		}
		grace, err := time.ParseDuration(service.Grace)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		d := deployment{name: name, args: service.Command, environment: service.Environment, grace: grace}
		for _, port := range service.Ports {
			d.ports = append(d.ports, port[strings.LastIndexByte(port, ':')+1:])
		}
		found = append(found, d)
	}
	if len(found) != 3 {
		t.Errorf("compose.yml has %d nodes; want 3", len(found))
	}
	return found
}

func systemd(t *testing.T) deployment {
	t.Helper()
	unit := deployFile(t, "deploy/systemd/forge.service")
	value := func(key string) string {
		line := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindStringSubmatch(unit)
		if line == nil {
			t.Fatalf("forge.service has no %s", key)
		}
		return line[1]
	}
	if strings.Contains(unit, "\nExecStartPre=") {
		t.Error("forge.service has an ExecStartPre, whose exit code RestartPreventExitStatus ignores")
	}
	if kind := value("Type"); kind != "notify" {
		t.Errorf("forge.service has Type=%s", kind)
	}
	if waitTimeout, err := time.ParseDuration(value("WatchdogSec")); err != nil || waitTimeout <= 0 {
		t.Errorf("forge.service has no watchdog: %v", err)
	}
	grace, err := time.ParseDuration(value("TimeoutStopSec"))
	if err != nil {
		t.Fatal(err)
	}
	return deployment{name: "systemd", args: strings.Fields(value("ExecStart"))[1:], grace: grace}
}

// The files in deploy/ are true: forge knows their flags, they reach the port that
// it listens on, and nobody kills it while it drains.
func TestDeploymentsFitForge(t *testing.T) {
	t.Parallel()
	drains := config.Default().Node.DrainTimeout.Std()
	image := deployFile(t, "Dockerfile")
	for _, d := range append(compose(t), kubernetes(t), systemd(t)) {
		if _, errs, code := forgeWith(t, nil, append(d.args, "--help")...); code != 0 {
			t.Errorf("%s: forge %s: exit %d: %s", d.name, strings.Join(d.args, " "), code, errs)
		}
		if d.grace <= drains {
			t.Errorf("%s: killed after %s, while it drains for %s", d.name, d.grace, drains)
		}
		if at := slices.Index(d.args, "--listen"); at >= 0 {
			_, port, err := net.SplitHostPort(d.args[at+1])
			if err != nil || !slices.Equal(d.ports, []string{port}) || !strings.Contains(image, "EXPOSE "+port+"\n") {
				t.Errorf("%s: listens on port %s and is reached on %v (%v)", d.name, port, d.ports, err)
			}
		} else if d.name != "systemd" {
			t.Errorf("%s: listens on loopback alone", d.name)
		}
	}
	if last := regexp.MustCompile(`(?m)^USER (\S+)$`).FindStringSubmatch(image); last == nil || strings.HasPrefix(last[1], "0") {
		t.Errorf("the image runs as %v", last)
	}
}

// systemd accepts the unit as it is, but for where the program lies.
func TestUnitIsValid(t *testing.T) {
	t.Parallel()
	analyze := pgtest.Program(t, "systemd-analyze", "apt-get install systemd")
	unit := deployFile(t, "deploy/systemd/forge.service")
	unit = strings.ReplaceAll(unit, "/usr/local/bin/forge", forgeBinary(t))
	unit = strings.Replace(unit, "\nDocumentation=man:forge(1)\n", "\n", 1) // the page is not installed here
	path := filepath.Join(t.TempDir(), "forge.service")
	if err := os.WriteFile(path, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", path).CombinedOutput() //nolint:gosec // an installed program
	// What it says of the machine's own units is not ours.
	if err != nil || strings.Contains(string(out), "forge.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// The configurations beside them are valid, and the probes of the manifest find what
// they ask for, without a token.
func TestDeploymentsProbeExistingPaths(t *testing.T) {
	t.Parallel()
	wide := []string{
		"FORGE_HTTP_LISTEN=0.0.0.0:8080", "FORGE_DATABASE_URL=postgres://forge@pg/forge", "POSTGRES_PASSWORD=x",
		"FORGE_HTTP_ALLOWED_HOSTS=forge,forge.jobs.svc", "FORGE_NODE_DRAIN_TIMEOUT=30s",
	}
	all := manifests(t)
	var chart struct{ Config string }
	if err := yaml.Unmarshal([]byte(deployFile(t, "deploy/helm/forge/values.yaml")), &chart); err != nil || chart.Config == "" {
		t.Fatalf("the chart has no configuration: %v", err)
	}
	for _, text := range []string{deployFile(t, "deploy/docker/forge.toml"), all["ConfigMap"].Data["forge.toml"], chart.Config} {
		path := filepath.Join(t.TempDir(), "forge.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, errs, code := forgeWith(t, wide, "check", "--config", path); code != 0 {
			t.Errorf("forge check: exit %d\n%s%s\n%s", code, out, errs, text)
		}
	}
	app := all["Deployment"].Spec
	c := app.Template.Spec.Containers[0]
	for _, variable := range c.Env {
		if !slices.Contains([]string{"FORGE_NODE_ID", "FORGE_DATABASE_URL"}, variable.Name) {
			t.Errorf("the manifest sets %s, which nobody has looked at", variable.Name)
		}
	}
	if budget := all["PodDisruptionBudget"].Spec.MaxUnavailable; app.Replicas != 3 || budget == nil || *budget != 1 {
		t.Errorf("%d nodes, of which a drain may take %v", app.Replicas, budget)
	}
	cluster := newCluster(t, all["ConfigMap"].Data["forge.toml"])
	cluster.start("pod")
	for _, probe := range []string{c.StartupProbe.HTTPGet.Path, c.LivenessProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path} {
		eventually(t, "200 of "+probe, func() bool { return nodes.Status(cluster.nodes["pod"].listen(), probe) == http.StatusOK })
	}
}

// Each command has a page of the manual, and each shell its completion.
func TestManualAndCompletion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, errs, code := forgeWith(t, nil, "man", dir); code != 0 {
		t.Fatalf("forge man: exit %d: %s", code, errs)
	}
	for _, page := range []string{"forge.1", "forge-serve.1", "forge-leader-step-down.1", "forge-drill.1"} {
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil || !strings.HasPrefix(string(text), `.nh`) || !strings.Contains(string(text), `.SH NAME`) {
			t.Errorf("%s: %v\n%.200s", page, err, text)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, errs, code := forgeWith(t, nil, "completion", shell); code != 0 || !strings.Contains(out, "forge") {
			t.Errorf("forge completion %s: exit %d: %s", shell, code, errs)
		}
	}
	if out, _, _ := forgeWith(t, nil, "__complete", "leader", "st"); !strings.Contains(out, "status") || !strings.Contains(out, "step-down") {
		t.Errorf("forge leader st<TAB>:\n%s", out)
	}
}
