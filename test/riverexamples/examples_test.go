package riverexamples_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/migrations"
	"github.com/forge-scheduler/forge/test/riverexamples"
)

// notApplicable are examples of what forge has in another form, by what docs/river.md says of it.
var notApplicable = map[string]string{
	"client_from_context":               "ID: made of node.id",
	"cron_job":                          "PeriodicJobs: [[crons]]",
	"periodic_job":                      "PeriodicJobs: [[crons]]",
	"error_handler":                     "ErrorHandler: none",
	"job_stuck_handler":                 "JobStuckHandler: none",
	"job_stuck_handler_goroutine_dump":  "JobStuckHandler: none",
	"global_hooks":                      "Hooks of the client: none",
	"global_middleware":                 "Middleware of the client: none",
	"hook_metric_emit":                  "Hooks of the client: none",
	"graceful_shutdown":                 "the node stops, not its client",
	"graceful_shutdown_stop_and_cancel": "the node stops, not its client",
	"resumable_set_step_tx":             "imports a package internal to River",
}

// migrated returns the address of a database with the examples' schema, which is not in the
// search_path of who connects.
func migrated(t *testing.T) string {
	t.Helper()
	url := pgtest.EmptyURL(t)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["search_path"] = riverexamples.Schema
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := postgres.EnsureSchema(t.Context(), pool, riverexamples.Schema); err != nil {
		t.Fatal(err)
	}
	if err := migrations.New(pool, slog.New(slog.DiscardHandler)).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return url
}

// hooksOfOthers is the example whose hooks another one uses.
const hooksOfOthers = "global_hooks"

// TestExamplesOfRiver compiles River's examples, as its module has them, with nodes in place of
// clients, and has go test compare what they print with what they say that they print.
func TestExamplesOfRiver(t *testing.T) {
	t.Parallel()
	dir := moduleDir(t, "github.com/riverqueue/river")
	files, err := filepath.Glob(filepath.Join(dir, "example_*_test.go"))
	if err != nil || len(files) < 20 {
		t.Fatalf("River has %d examples, %v", len(files), err)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var applicable []string
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "example_"), "_test.go")
		_, excluded := notApplicable[name]
		if excluded && name != hooksOfOthers {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(here, filepath.Base(file))] = writeFile(t, onForge(string(text)))
		if !excluded {
			applicable = append(applicable, regexp.MustCompile(`(?m)^func (Example\w*)\(`).FindStringSubmatch(string(text))[1])
		}
	}
	overlay.Replace[filepath.Join(here, "common_test.go")] = writeFile(t, common)
	table, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "go", "test", "-v", "-count=1", "-run=^("+strings.Join(applicable, "|")+")$", "-overlay="+writeFile(t, string(table)), ".") //nolint:gosec // our own arguments
	run.Env = append(os.Environ(), "TEST_DATABASE_URL="+migrated(t))
	out, err := run.CombinedOutput()
	passed := regexp.MustCompile(`(?m)^--- PASS: Example`).FindAllStringSubmatch(string(out), -1)
	if err != nil || len(passed) != len(applicable) {
		t.Errorf("%d of %d examples passed (%s): %v\n%s", len(passed), len(applicable), strings.Join(applicable, ", "), err, out)
	}
}

// common has in place of River's own helper what the examples call.
const common = `package riverexamples_test

import (
	"context"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge/test/riverexamples"
)

func initTestConfig(_ context.Context, _ *pgxpool.Pool, config *river.Config) *river.Config {
	config.Schema = riverexamples.Schema
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	return config
}

type NoOpArgs struct{}

func (NoOpArgs) Kind() string { return "no_op" }

type NoOpWorker struct{ river.WorkerDefaults[NoOpArgs] }

func (*NoOpWorker) Work(context.Context, *river.Job[NoOpArgs]) error { return nil }
`

// onForge returns an example with nodes in place of clients.
func onForge(text string) string {
	return strings.NewReplacer(
		"package river_test", "package riverexamples_test",
		"river.NewClient(riverpgxv5.New(dbPool), ", "riverexamples.NewClient(dbPool, ",
		`"github.com/riverqueue/river/rivershared/riversharedtest"`, `"github.com/forge-scheduler/forge/test/riverexamples"`,
		"riversharedtest.WaitOrTimeoutN(testutil.PanicTB(), ", "riverexamples.WaitOrTimeoutN(",
		"riversharedtest.", "riverexamples.",
		"riverdbtest.TestSchema(ctx, testutil.PanicTB(), riverpgxv5.New(dbPool), nil)", "riverexamples.Schema",
		`"github.com/riverqueue/river/riverdbtest"`, "",
		`"github.com/riverqueue/river/rivershared/util/testutil"`, "",
	).Replace(text) + "\nvar _ = riverpgxv5.New\n"
}

func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}
