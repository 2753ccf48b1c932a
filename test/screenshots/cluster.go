package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/test/nodes"
)

// exampleListen is the address in the example's configuration.
const exampleListen = "127.0.0.1:8080"

const (
	startTimeout    = 2 * time.Minute
	electionTimeout = 30 * time.Second
	stopTimeout     = 30 * time.Second
)

// cluster is a forge dev with a data directory of its own.
type cluster struct {
	listen string
	dir    string
	forge  *nodes.Process
	output nodes.Output
}

// startCluster returns when every node is ready.
func startCluster(ctx context.Context, binary, config string) (*cluster, error) {
	dir, err := os.MkdirTemp("", "forge-screenshots-")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir}
	if err := c.start(binary, config); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.awaitNodes(ctx, 3); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) start(binary, config string) error {
	if err := os.Chmod(c.dir, 0o755); err != nil { //nolint:gosec // PostgreSQL's own user must pass
		return err
	}
	var err error
	if c.listen, err = devcluster.FindPort("127.0.0.1"); err != nil {
		return err
	}
	example, err := os.ReadFile(config) //nolint:gosec // named by the user
	if err != nil {
		return err
	}
	// The example asks its own first node, which listens elsewhere here.
	example = bytes.ReplaceAll(example, []byte(exampleListen), []byte(c.listen))
	path := filepath.Join(c.dir, "forge.toml")
	if err := os.WriteFile(path, example, 0o644); err != nil { //nolint:gosec // no secrets in it
		return err
	}
	// Not bound to a context: Ctrl-C reaches stop, which ends it in order.
	cmd := exec.Command(binary, "dev", "--nodes", "3", "--config", path, //nolint:gosec,noctx // ended by stop
		"--data-dir", filepath.Join(c.dir, "data"), "--listen", c.listen)
	cmd.Env = nodes.Environment()
	cmd.Stdout, cmd.Stderr = &c.output, &c.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is ours alone
	if c.forge, err = nodes.Run(cmd); err != nil {
		return fmt.Errorf("start %s (make build builds it): %w", binary, err)
	}
	return nil
}

// stop ends the cluster and removes its data.
func (c *cluster) stop() error {
	_ = c.forge.Process.Signal(os.Interrupt) // it may be gone
	select {
	case <-c.forge.Done():
	case <-time.After(stopTimeout):
		c.forge.Kill()
	}
	return errors.Join(c.forge.Err(), os.RemoveAll(c.dir))
}

func (c *cluster) awaitNodes(ctx context.Context, count int) error {
	return c.await(ctx, startTimeout, fmt.Sprintf("%d nodes and a leader", count), func() bool {
		nodes, err := c.nodes(ctx)
		if err != nil || len(nodes) < count {
			return false
		}
		leader, err := c.leader(ctx)
		return err == nil && leader != ""
	})
}

// killLeader ends the scheduler's leader as a crash would, and returns its id.
func (c *cluster) killLeader(ctx context.Context) (id string, err error) {
	if id, err = c.leader(ctx); err != nil {
		return "", err
	}
	nodes, err := c.nodes(ctx)
	if err != nil {
		return "", err
	}
	for _, n := range nodes {
		if n.ID == id {
			return id, syscall.Kill(n.PID, syscall.SIGKILL)
		}
	}
	return "", fmt.Errorf("the leader %q is not among the nodes", id)
}

// awaitOther waits until another node leads the scheduler.
func (c *cluster) awaitOther(ctx context.Context, old string) (next string, err error) {
	err = c.await(ctx, electionTimeout, "another leader", func() bool {
		id, err := c.leader(ctx)
		next = id
		return err == nil && id != "" && id != old
	})
	return next, err
}

func (c *cluster) await(ctx context.Context, timeout time.Duration, what string, arrived func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !arrived() {
		select {
		case <-c.forge.Done():
			return fmt.Errorf("forge dev ended: %w\n%s", c.forge.Err(), &c.output)
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

func (c *cluster) leader(ctx context.Context) (id string, err error) {
	var status struct {
		LeaderID string `json:"leader_id"`
	}
	err = nodes.Read(ctx, c.listen, "/cluster/status", &status)
	return status.LeaderID, err
}

type node struct {
	ID  string `json:"node_id"`
	PID int    `json:"pid"`
}

func (c *cluster) nodes(ctx context.Context) ([]node, error) {
	var list struct{ Items []node }
	err := nodes.Read(ctx, c.listen, "/api/v1/nodes", &list)
	return list.Items, err
}

// job returns the newest finished job of a cron.
func (c *cluster) job(ctx context.Context, cron string) (id int64, err error) {
	var list struct {
		Items []struct {
			ID int64 `json:"id"`
		}
	}
	if err := nodes.Read(ctx, c.listen, "/api/v1/jobs?state=completed&limit=1&cron="+cron, &list); err != nil {
		return 0, err
	}
	if len(list.Items) == 0 {
		return 0, fmt.Errorf("no run of %s has finished", cron)
	}
	return list.Items[0].ID, nil
}

// url is an address on the first node. When that was the leader, it is back a
// moment after it was killed.
func (c *cluster) url(path string) string { return "http://" + c.listen + path }
