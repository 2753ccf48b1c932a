package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/test/parts"
)

// cluster is a PostgreSQL and the processes on it.
type cluster struct {
	*bench
	server  *devcluster.Server
	launch  devcluster.ServerOptions
	replica *devcluster.Server // nil without one
	url     string             // of whichever server takes writes
	pool    *pgxpool.Pool
	nodes   []*process
	// networks are the nodes' own, when the network is to be broken.
	networks []*parts.Namespace
}

// withCluster works on a cluster, whose nodes have networks of their own if those
// are to be broken.
func (b *bench) withCluster(ctx context.Context, networked bool, work func(*cluster) error) (err error) {
	var networks []*parts.Namespace
	if networked {
		if networks, err = makeNetworks(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeNetworks(networks)) }()
	}
	c, err := b.newCluster(ctx, networks...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	return work(c)
}

// newCluster starts a PostgreSQL, on the networks too if there are any.
func (b *bench) newCluster(ctx context.Context, networks ...*parts.Namespace) (c *cluster, err error) {
	settings := map[string]string{"track_commit_timestamp": "on", "max_connections": "200"}
	dir := filepath.Join(b.dir, b.name("postgres"))
	c = &cluster{bench: b, networks: networks, launch: devcluster.ServerOptions{DataDir: dir, Settings: settings}}
	if len(networks) > 0 {
		reachable, err := parts.Reachable(dir+".hba", networks...)
		if err != nil {
			return nil, err
		}
		maps.Copy(settings, reachable)
	}
	if err := c.startServer(ctx); err != nil {
		return nil, err
	}
	c.launch.Port, c.url = c.server.Port(), c.server.URL()
	b.report.postgres(c.server.Version())
	if err := c.connect(ctx); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cluster) startServer(ctx context.Context) (err error) {
	if c.server, err = devcluster.StartServer(ctx, c.launch); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	return nil
}

func (c *cluster) connect(ctx context.Context) (err error) {
	if c.pool, err = pgxpool.New(ctx, c.url); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return nil
}

// replicate gives the server a replica, and makes the cluster's address that of
// both.
func (c *cluster) replicate(ctx context.Context) (err error) {
	if c.replica, _, err = parts.Replicate(ctx, c.server, c.launch, c.launch.DataDir+"-replica"); err != nil {
		return err
	}
	if err := parts.Synchronous(ctx, c.server.URL()); err != nil {
		return err
	}
	if c.url, err = parts.MultiHost(c.server.URL(), c.replica.URL()); err != nil {
		return err
	}
	c.pool.Close()
	return c.connect(ctx)
}

// close ends every process of the cluster.
func (c *cluster) close() error {
	for _, node := range c.nodes {
		node.Kill()
	}
	if c.pool != nil {
		c.pool.Close()
	}
	var errs []error
	for _, server := range []*devcluster.Server{c.server, c.replica} {
		if server != nil {
			errs = append(errs, server.Stop(devcluster.StopImmediate))
		}
	}
	return errors.Join(errs...)
}

func (c *cluster) node(id string) *process {
	for _, node := range c.nodes {
		if node.ID == id {
			return node
		}
	}
	return nil
}

func (c *cluster) forget(node *process) {
	c.nodes = slices.DeleteFunc(c.nodes, func(other *process) bool { return other == node })
}

// read looks until a query has a row.
func (c *cluster) read(ctx context.Context, what, sql string, args []any, into ...any) error {
	return rig.Await(ctx, what, func(ctx context.Context) (bool, error) {
		err := c.pool.QueryRow(ctx, sql, args...).Scan(into...)
		return err == nil, err
	})
}

// awaitTrue looks until a query says true.
func (c *cluster) awaitTrue(ctx context.Context, what, sql string, args ...any) error {
	return rig.Await(ctx, what, func(ctx context.Context) (ok bool, err error) {
		err = c.pool.QueryRow(ctx, sql, args...).Scan(&ok)
		return ok, err
	})
}
