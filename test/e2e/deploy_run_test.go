package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// commandsIn returns the commands that the comment at the head of a file gives, one a line.
func commandsIn(text string) []string {
	var commands []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		if command, ok := strings.CutPrefix(line, "#   "); ok {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}

// TestComposeAsDocumented runs the commands at the head of compose.yml. In place of Docker it
// starts a service as the user of the image, in a root with the mounted file and the service's
// environment.
func TestComposeAsDocumented(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		pgtest.NotRun(t, "the right to change the root directory", "run as root")
	}
	head := commandsIn(deployFile(t, "deploy/docker/compose.yml"))
	if documented := deployFile(t, "docs/install.md"); !strings.Contains(documented, strings.Join(head[:4], "\n")) {
		t.Errorf("docs/install.md does not give the commands of compose.yml:\n%s", strings.Join(head, "\n"))
	}
	root, dir := nodes.OpenDir(t), t.TempDir()
	copyProgram(t, root)
	copyConfig(t, "../../deploy/docker/forge.toml", root)
	var service deployment
	for _, d := range compose(t) {
		if d.name == "node-1" {
			service = d
		}
	}
	url := pgtest.URL(t)
	inside := func(args ...string) *process {
		env := []string{"FORGE_DATABASE_URL=" + url}
		for name, value := range service.environment {
			env = append(env, name+"="+expandFrom(t, filepath.Join(dir, ".env"), value))
		}
		line := strings.ReplaceAll(strings.Join(args, " "), "/etc/forge/forge.toml", "/forge.toml")
		line = strings.ReplaceAll(line, "0.0.0.0:8080", nodes.AnyPort)
		started, output := nodes.LaunchWithin(t, &syscall.SysProcAttr{
			Chroot: root, Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser},
		}, "/forge", env, strings.Fields(line)...)
		return &process{running: started, output: output, done: started.Done()}
	}
	var node *process
	for _, command := range head {
		switch execed, isExec := strings.CutPrefix(command, "docker compose exec node-1 /usr/local/bin/forge "); {
		case command == "cd deploy/docker", strings.HasPrefix(command, "http://"):
		case command == "docker compose up --build":
			node = inside(service.args...)
			node.AwaitReady(t, node.output)
		case isExec:
			create := inside(strings.Fields(execed)...)
			<-create.done
			token := regexp.MustCompile(`(?m)^forge_\S+$`).FindString(create.output.String())
			if code := statusWith(t, node.listen(), "/api/v1/nodes", "", token); code != http.StatusOK {
				t.Errorf("GET /api/v1/nodes with the token of %q: %d", command, code)
			}
		default:
			shell := exec.CommandContext(t.Context(), "sh", "-ec", "umask 022; "+command) //nolint:gosec // our own documentation
			shell.Dir = dir
			if out, err := shell.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, out)
			}
		}
	}
	if node == nil {
		t.Fatal("no documented command starts the cluster")
	}
}

// expandFrom replaces ${NAME:?...} by the value of NAME in an .env file.
func expandFrom(t *testing.T, env, value string) string {
	t.Helper()
	text, err := os.ReadFile(env)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`\$\{(\w+):\?[^}]*\}`).ReplaceAllStringFunc(value, func(reference string) string {
		name := reference[2:strings.IndexByte(reference, ':')]
		set := regexp.MustCompile(`(?m)^` + name + `=(.+)$`).FindSubmatch(text)
		if set == nil {
			t.Fatalf("%s has no %s:\n%s", env, name, text)
		}
		return string(set[1])
	})
}

// statusWith asks a node by another name, and returns the status of its answer.
func statusWith(t *testing.T, address, path, host, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode
}

// TestDocumentedNamesAreAnswered asks nodes under the names of the Kubernetes Service and of
// scrape.yml, with the token that Prometheus is given.
func TestDocumentedNamesAreAnswered(t *testing.T) {
	t.Parallel()
	scrape := deployFile(t, "deploy/prometheus/scrape.yml")
	for name, c := range map[string]struct {
		config string
		hosts  []string
	}{
		"Kubernetes": {
			manifests(t)["ConfigMap"].Data["forge.toml"],
			[]string{"forge", "forge.forge", "forge.forge.svc", "forge.forge.svc.cluster.local", "10.0.0.7:8080"},
		},
		"Prometheus": {"[dashboard]\nauth = \"token\"\n" + strings.Join(httpSectionIn(scrape), "\n"), scrapeTargets(t, scrape)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newCluster(t, c.config)
			node := launch(t, []string{"FORGE_DATABASE_URL=" + cluster.url},
				"serve", "--config", cluster.config, "--node-id", "a", "--listen", "0.0.0.0:0")
			node.AwaitReady(t, node.output)
			token, errs, code := cluster.forge("token", "create", "prometheus", "--expires", "never")
			if code != 0 {
				t.Fatal(errs)
			}
			for _, host := range append(c.hosts, "forge.example.com") {
				want := http.StatusOK
				if host == "forge.example.com" {
					want = http.StatusMisdirectedRequest
				}
				if got := statusWith(t, node.listen(), "/metrics", host, strings.TrimSpace(token)); got != want {
					t.Errorf("GET /metrics of %s: %d, want %d", host, got, want)
				}
			}
		})
	}
}

// httpSectionIn returns the [http] section that the head of scrape.yml documents.
func httpSectionIn(scrape string) []string {
	all := commandsIn(scrape)
	for i, line := range all {
		if line == "[http]" {
			return all[i:]
		}
	}
	return nil
}

func scrapeTargets(t *testing.T, scrape string) []string {
	t.Helper()
	document, err := yaml.YAMLToJSON([]byte(scrape))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Jobs []struct {
			Authorization struct {
				File string `json:"credentials_file"`
			} `json:"authorization"`
			Static []struct {
				Targets []string `json:"targets"`
			} `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	if err := json.Unmarshal(document, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Jobs) != 1 || len(file.Jobs[0].Static) != 1 || len(file.Jobs[0].Static[0].Targets) != 3 || file.Jobs[0].Authorization.File == "" {
		t.Fatalf("scrape.yml has no three targets with a token: %+v", file)
	}
	return file.Jobs[0].Static[0].Targets
}
