package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/internal/devcluster"
)

const nodeCount = 3

// settings keep rows for so short a time that what comes and what goes are even
// within the first minutes: a pass of the log compactor deletes what is older, each
// five minutes. Windows of metrics are kept for an hour at least, and the cluster's
// totals for a day: those tables grow as long.
const settings = `
[metrics]
rollups = { "1m" = "1h", "5m" = "3h", "1h" = "1d" }
[retention]
completed = "1m"
cancelled = "1m"
discarded = "1m"
cron_ticks = "1m"
logs = "1m"
events = "1m"

[jobs.query]
kind = "sql"
statement = "SELECT count(*) FROM pg_class"

[jobs.print]
kind = "shell"
command = ["sh", "-c", "for n in 1 2 3 4 5 6 7 8 9; do echo line $n of a job that prints; done"]

[jobs.fail]
kind = "shell"
retry = { max_attempts = 2, backoff = "1s" }
command = ["false"]
`

// member is a node with where it listens.
type member struct {
	*rig.Process

	address string
}

type cluster struct {
	nodes []member
	pool  *pgxpool.Pool
}

func configuration() string {
	text := &strings.Builder{}
	text.WriteString(settings)
	for i := range 30 {
		job, every := "query", "1s"
		switch {
		case i%3 == 1:
			job, every = "print", "2s"
		case i%10 == 9:
			job, every = "fail", "10s"
		}
		fmt.Fprintf(text, "\n[[crons]]\nname = \"c%d\"\njob = %q\nschedule = \"@every %s\"\noverlap = \"allow\"\n", i, job, every)
	}
	return text.String()
}

func start(ctx context.Context, r *rig.Rig, program string) (*cluster, error) {
	url, pool, err := r.Database(ctx)
	if err != nil {
		return nil, err
	}
	c := &cluster{pool: pool}
	path := filepath.Join(r.Dir, "forge.toml")
	if err := os.WriteFile(path, []byte(configuration()), 0o600); err != nil {
		return nil, err
	}
	for i := range nodeCount {
		id := fmt.Sprintf("node-%d", i+1)
		address, err := devcluster.FindPort("127.0.0.1")
		if err != nil {
			return nil, err
		}
		p, err := rig.Launch(r.Dir, id, []string{"FORGE_DATABASE_URL=" + url}, program, "serve", "--config", path, "--node-id", id, "--listen", address)
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, member{p, address})
	}
	return c, rig.Await(ctx, "every node is ready", func(ctx context.Context) (bool, error) {
		for _, n := range c.nodes {
			if err := n.Alive(); err != nil {
				return false, err
			}
			if _, err := n.goroutines(ctx); err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// close ends the nodes: SIGKILL is enough where nobody looks any more.
func (c *cluster) close() {
	for _, n := range c.nodes {
		n.Kill()
	}
	c.pool.Close()
}

// goroutines asks a node for how many it has.
func (m member) goroutines(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.address+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask %s: %w", m.ID, err)
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return 0, fmt.Errorf("read the metrics of %s: %w", m.ID, err)
	}
	family, ok := families["go_goroutines"]
	if !ok {
		return 0, fmt.Errorf("%s does not say how many goroutines it has", m.ID)
	}
	return family.GetMetric()[0].GetGauge().GetValue(), nil
}
