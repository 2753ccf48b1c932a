package forge

import (
	"bytes"
	"errors"
	"log/slog"
	"os/exec"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/alerting"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
)

// A program that imports forge compiles neither Prometheus' engine nor Alertmanager unless
// it imports package alerting, no exporter of spans, and no client of Kubernetes.
func TestPackageCompilesNoAlertEngine(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.Lines(string(out)) {
		for _, costly := range []string{
			"github.com/prometheus/prometheus/", "github.com/prometheus/alertmanager/",
			"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters/", "google.golang.org/grpc", "k8s.io/",
		} {
			if strings.HasPrefix(dep, costly) {
				t.Errorf("package forge compiles %s", dep)
			}
		}
	}
}

const (
	validAlert = "[[alerts]]\nname = \"a\"\ncondition = \"vector(1) > 0\"\n"
	aReceiver  = "[notify.hook]\ntype = \"webhook\"\nurl = \"http://h/\"\n"
)

// A node that is to elect by Leases of Kubernetes and cannot is refused, with the call that it lacks.
func TestNewNeedsAClientOfKubernetes(t *testing.T) {
	t.Parallel()
	node, err := New(parsed(t, noDatabase+"[cluster.leader_election]\nstrategy = \"kubernetes\"\n"))
	if err == nil {
		node.Close()
	}
	if !errors.Is(err, errNoKubernetes) {
		t.Errorf("got %v", err)
	}
}

// A node that may have to evaluate alerts or notify receivers and cannot is refused, with
// the import and the call that it lacks.
func TestNewChecksAlerts(t *testing.T) {
	t.Parallel()
	const workerOnly = "[node]\nroles = [\"worker\"]\n"
	engine := []Option{WithAlerts(alerting.New())}
	for _, test := range []struct {
		name, file string
		options    []Option
		want       []string // parts of the error; none: no error
	}{
		{"alerts without an engine", validAlert, nil, []string{"[[alerts]]", `import "github.com/forge-scheduler/forge/alerting"`, "forge.WithAlerts(alerting.New())"}},
		{"receivers without an engine", aReceiver, nil, []string{"[notify.NAME]", "forge.WithAlerts(alerting.New())"}},
		{"a worker without an engine", validAlert + aReceiver + workerOnly, nil, nil},
		{"neither", "", nil, nil},
		{"with an engine", validAlert + aReceiver, engine, nil},
		{"an invalid condition", strings.Replace(validAlert, "vector(1)", "sum(up", 1), engine, []string{"alerts[0].condition: at its character ", "unclosed left parenthesis"}},
		{"a doubtful condition", strings.Replace(validAlert, "vector(1)", "no_such_metric", 1), engine, nil},
	} {
		cfg, err := ParseConfig("test", "[database]\nurl = \"postgres://localhost/none\"\n"+test.file)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		node, err := New(cfg, append(test.options, WithLogger(slog.New(slog.DiscardHandler)))...)
		if err == nil {
			node.Close()
		}
		if (err != nil) != (len(test.want) > 0) {
			t.Errorf("%s: %v", test.name, err)
		}
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", test.name, err, want)
			}
		}
	}
}

// An edit cannot add alerts to a node without an engine, or an invalid condition to one with
// an engine: the node keeps its configuration.
func TestReloadChecksAlerts(t *testing.T) {
	t.Parallel()
	for _, options := range [][]Option{nil, {WithAlerts(alerting.New())}} {
		cfg, err := ParseConfig("test", "[database]\nurl = \"postgres://localhost/none\"\n")
		if err != nil {
			t.Fatal(err)
		}
		node, err := New(cfg, append(options, WithLogger(slog.New(slog.DiscardHandler)))...)
		if err != nil {
			t.Fatal(err)
		}
		defer node.Close()
		next, err := ParseConfig("test", "[database]\nurl = \"postgres://localhost/none\"\n"+strings.Replace(validAlert, "vector(1)", "sum(up", 1))
		if err != nil {
			t.Fatal(err)
		}
		err = node.replace(t.Context(), cfg, next, nil)
		if _, refused := errors.AsType[refusal](err); !refused || errors.Is(err, alerts.ErrNoEngine) != (options == nil) {
			t.Errorf("with %d options: %v", len(options), err)
		}
	}
}

// A node without an engine that leads warns, once, of the alerts in force that another node
// applied.
func TestUnevaluatedAlertsAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	n := &Node{pool: pgtest.Pool(t), logger: slog.New(slog.NewTextHandler(&log, nil))}
	watch := n.newWatch(leaderstore.Fence{})
	defer watch.Close()
	for _, body := range []string{`{"alerts": []}`, `{"alerts": [{"name": "a", "condition": "up"}]}`} {
		if _, err := n.pool.Exec(t.Context(), `INSERT INTO forge_config (hash, applied_by, body) VALUES (md5($1), 'b', $1::jsonb)`, body); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := watch.See(t.Context(), aggregator.Totals{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "the alerts in force are not evaluated") || !strings.Contains(text, "forge.WithAlerts(alerting.New())") {
		t.Errorf("logged %s", text)
	}
}
