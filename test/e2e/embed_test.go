package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestEmbeddedNodeWorksAJobOfItsOwnTransaction(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "embed")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../examples/embed").CombinedOutput(); err != nil { //nolint:gosec // our own example
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program) //nolint:gosec // just built
	cmd.Env = append(cleanEnvironment(), "FORGE_DATABASE_URL="+pgtest.EmptyURL(t), "FORGE_HTTP_LISTEN="+freeAddress(t))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("run the example: %v\n%s", err, out)
	}
	for _, want := range []string{"order 1 placed", "receipt of order 1 sent, attempt 1", "node has stopped"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
