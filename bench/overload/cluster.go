package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/test/chaos/checker"
	"github.com/forge-scheduler/forge/test/nodes"
)

const (
	nodeCount = 3
	// restartAfter is how long a node that ended by itself is down.
	restartAfter = 500 * time.Millisecond
	// stopping is how long nodes may take to stop.
	stopping = 20 * time.Second
)

const (
	// leadsSQL has a trigger note each change and each renewal of a leader. It takes
	// its time while the row is locked, so that it is after the last commit of the
	// term before and before the first of this one.
	leadsSQL = `
CREATE TABLE overload_leads (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz DEFAULT clock_timestamp(),
    role text, term bigint, node_id text, renewed_at timestamptz);
CREATE FUNCTION overload_lead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO overload_leads (role, term, node_id, renewed_at) VALUES (NEW.role, NEW.term, coalesce(NEW.node_id, ''), NEW.renewed_at);
    RETURN NULL;
END $$;
CREATE TRIGGER overload_lead AFTER INSERT OR UPDATE ON forge_leaders FOR EACH ROW EXECUTE FUNCTION overload_lead()`

	sinceSQL = `SELECT name, watermark FROM forge_crons ORDER BY name`
)

// cluster is a server, the nodes on it and what harms them.
type cluster struct {
	options

	rig       *rig.Rig
	group     cgroup
	self      string // this program
	config    string
	url       string // of the database
	nodesURL  string // the nodes' way to it
	way       *slowWay
	pool      *pgxpool.Pool
	snapshot  func() // ends the transaction that holds one; nil: none is held
	schedules []checker.Cron
	missing   int // of the jobs that waited from the beginning
	worked    int // those of them that were worked

	keeping sync.WaitGroup
	mu      sync.Mutex
	living  map[string]*rig.Process
	over    bool
	exits   int // of nodes that nobody asked to end
}

// newCluster makes a server with forge's tables and crons, and does what the scenario
// needs before the nodes start.
func newCluster(ctx context.Context, o options, s scenario) (c *cluster, err error) {
	c = &cluster{options: o, living: map[string]*rig.Process{}, group: newCgroup(o.share)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.self, err = os.Executable(); err != nil {
		return c, err
	}
	if c.rig, err = rig.New(ctx, "overload", map[string]string{"max_connections": "300", "track_commit_timestamp": "on"}); err != nil {
		return c, err
	}
	if c.url, c.pool, err = c.rig.Database(ctx); err != nil {
		return c, err
	}
	c.nodesURL = c.url
	if s.proxied {
		if c.way, err = newSlowWay(c.url); err != nil {
			return c, err
		}
		c.nodesURL = c.way.url
	}
	if err := c.define(ctx); err != nil {
		return c, err
	}
	if s.prepare != nil {
		if err := s.prepare(ctx, c); err != nil {
			return c, err
		}
	}
	return c, errors.Join(c.readCrons(ctx), c.enclose())
}

// define applies the file: crons that are due every second, and the job of those that
// are inserted.
func (c *cluster) define(ctx context.Context) error {
	text := &strings.Builder{}
	if c.lease > 0 {
		fmt.Fprintf(text, "[cluster.leader_election]\nlease_duration = %q\n", c.lease)
	}
	fmt.Fprintf(text, "[jobs.%s]\nkind = \"shell\"\ncommand = [\"true\"]\n[jobs.%s]\nkind = \"shell\"\ncommand = [\"true\"]\n", insertedKind, waitingKind)
	for n := range c.crons {
		fmt.Fprintf(text, "[[crons]]\nname = \"cron-%03d\"\nschedule = \"@every 1s\"\ncommand = [\"true\"]\n", n)
	}
	c.config = filepath.Join(c.rig.Dir, "forge.toml")
	if err := os.WriteFile(c.config, []byte(text.String()), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{{"migrate", "up"}, {"apply", "--config", c.config}} {
		cmd := exec.CommandContext(ctx, c.forge, args...) //nolint:gosec // named by the user
		cmd.Env = append(nodes.Environment(), "FORGE_DATABASE_URL="+c.url)
		cmd.Dir = c.rig.Dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("forge %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return c.exec(ctx, leadsSQL)
}

// readCrons notes from when on each cron is due.
func (c *cluster) readCrons(ctx context.Context) error {
	rows, err := c.pool.Query(ctx, sinceSQL)
	if err != nil {
		return fmt.Errorf("read the crons: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		// The policies are forge's defaults.
		cron := checker.Cron{
			Rule: checker.Rule{Every: time.Second}, Overlap: checker.OverlapSkip,
			CatchUp: checker.CatchUpLatest, Window: time.Hour, Limit: 10,
		}
		if err := rows.Scan(&cron.Name, &cron.Since); err != nil {
			return fmt.Errorf("read the crons: %w", err)
		}
		c.schedules = append(c.schedules, cron)
	}
	return rows.Err()
}

// enclose moves PostgreSQL into the cgroup.
func (c *cluster) enclose() error {
	postmaster := c.rig.Server.PID()
	if err := c.group.add(postmaster); err != nil {
		return err
	}
	all, err := children(postmaster)
	for _, pid := range all {
		err = errors.Join(err, c.group.add(pid))
	}
	return err
}

func (c *cluster) exec(ctx context.Context, sql string, args ...any) error {
	if _, err := c.pool.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSpace(sql), err)
	}
	return nil
}

// startNodes starts the nodes and keeps them running, as a supervisor would.
func (c *cluster) startNodes(ctx context.Context) error {
	for n := range nodeCount {
		id := fmt.Sprintf("n%d", n+1)
		p, err := c.startNode(id, 1)
		if err != nil {
			return err
		}
		c.keeping.Go(func() { c.keep(ctx, id, p) })
	}
	return nil
}

func (c *cluster) startNode(id string, life int) (*rig.Process, error) {
	line := c.group.line(c.forge, "serve", "--config", c.config, "--node-id", id, "--listen", nodes.AnyPort)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, nil //nolint:nilnil // nobody is to start any more
	}
	p, err := rig.Launch(c.rig.Dir, fmt.Sprintf("%s-%d", id, life), []string{"FORGE_DATABASE_URL=" + c.nodesURL}, line...)
	if err == nil {
		c.living[id] = p
	}
	return p, err
}

// keep starts a node again that has ended by itself.
func (c *cluster) keep(ctx context.Context, id string, p *rig.Process) {
	for life := 2; p != nil; life++ {
		<-p.Done()
		c.mu.Lock()
		over := c.over
		if !over {
			c.exits++
		}
		c.mu.Unlock()
		if over || rig.SleepUntil(ctx, time.Now().Add(restartAfter)) != nil {
			return
		}
		p, _ = c.startNode(id, life) // one that cannot be started is one that ended
	}
}

// stopNodes asks the nodes to end, and kills those that do not.
func (c *cluster) stopNodes() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	for _, p := range c.living {
		_ = p.Signal(syscall.SIGTERM) // it may have ended
	}
	deadline := time.After(stopping)
	for _, p := range c.living {
		select {
		case <-p.Done():
		case <-deadline:
			p.Kill()
		}
	}
	c.keeping.Wait()
}

// close ends everything. The logs go into the folder for them, if there is one.
func (c *cluster) close() error {
	c.stopNodes()
	if c.snapshot != nil {
		c.snapshot()
	}
	if c.pool != nil {
		c.pool.Close()
	}
	if c.way != nil {
		c.way.close()
	}
	var err error
	if c.rig != nil {
		err = errors.Join(c.keepLogs(), c.rig.Close())
	}
	return errors.Join(err, c.group.remove())
}

func (c *cluster) keepLogs() error {
	if c.out == "" {
		return nil
	}
	if err := os.MkdirAll(c.out, 0o750); err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(c.rig.Dir, "*.log"))
	for _, log := range logs {
		body, readErr := os.ReadFile(log) //nolint:gosec // our own
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(c.out, filepath.Base(log)), body, 0o600))
	}
	return err
}
