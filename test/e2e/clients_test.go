package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// clientsDir has the clients and the versions of the programs that generate them.
const clientsDir = "../clients"

// TestGeneratedClients checks the document of a node with redocly's and spectral's
// recommended rules, generates a Go and a TypeScript client from it and runs both.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	c := newCluster(t, writesConfig)
	c.start("a")
	made, stderr, code := c.forge("token", "create", "admin", "--scope", "admin")
	if code != 0 {
		t.Fatal(stderr)
	}
	w := workshop{t: t, dir: t.TempDir(), env: append(os.Environ(),
		"FORGE_NODE=http://"+strings.TrimPrefix(c.nodes["a"].listen(), "http://"), "FORGE_TOKEN="+strings.TrimSpace(made),
		"REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")}
	_, _, text := bearing(t, strings.TrimSpace(made), http.MethodGet, c.nodes["a"].listen()+"/api/v1/openapi.json", "")
	w.write("forge.json", text)
	w.copy("go.mod", "go.sum", "client.go", "client.ts", "package.json", ".spectral.yaml")
	script, err := filepath.Abs("../../scripts/client-tools")
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.TrimSpace(w.output(script))
	if err := os.Symlink(modules, filepath.Join(w.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	bin := func(name string) string { return filepath.Join(modules, ".bin", name) }

	w.run(bin("redocly"), "lint", "--extends=recommended-strict", "--format=stylish", "forge.json")
	w.run(bin("spectral"), "lint", "--fail-severity=hint", "forge.json")

	w.run("go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "main", "-o", "forge.gen.go", "forge.json")
	w.run("go", "build", "-trimpath", "-o", "client", ".")
	w.run(filepath.Join(w.dir, "client"))

	w.run(bin("openapi-typescript"), "forge.json", "-o", "forge.d.ts")
	w.run(bin("tsc"), "--strict", "--target", "es2022", "--module", "nodenext", "client.ts")
	w.run("node", "client.js")
}

// workshop is a directory in which programs run.
type workshop struct {
	t   *testing.T
	dir string
	env []string
}

func (w workshop) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// copy copies files of the clients.
func (w workshop) copy(names ...string) {
	w.t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(clientsDir, name))
		if err != nil {
			w.t.Fatal(err)
		}
		w.write(name, string(text))
	}
}

// run fails the test with all that a program prints if the program fails.
func (w workshop) run(name string, args ...string) {
	w.t.Helper()
	if output, err := w.command(name, args...).CombinedOutput(); err != nil {
		w.t.Errorf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, output)
	}
}

// output is what a program prints for the next one.
func (w workshop) output(name string, args ...string) string {
	w.t.Helper()
	command := w.command(name, args...)
	var problems strings.Builder
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", filepath.Base(name), err, problems.String())
	}
	return string(output)
}

func (w workshop) command(name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(w.t.Context(), name, args...)
	command.Dir, command.Env = w.dir, w.env
	return command
}
