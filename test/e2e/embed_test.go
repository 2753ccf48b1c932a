package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

func TestEmbeddedNodeWorksAJobOfItsOwnTransaction(t *testing.T) {
	t.Parallel()
	program, err := nodes.Build(t.TempDir(), "examples/embed")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program) //nolint:gosec // just built
	cmd.Env = append(cleanEnvironment(), "FORGE_DATABASE_URL="+pgtest.EmptyURL(t), "FORGE_HTTP_LISTEN="+nodes.AnyPort)
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
