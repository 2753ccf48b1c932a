// Package riverexamples runs River's own examples on forge: their clients become nodes.
package riverexamples

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge"
)

// Schema holds the tables. No connection of an example has it in its search_path.
const Schema = "river_examples"

// Client is the client of a node, which Start and Stop run and end.
type Client struct {
	*river.Client[pgx.Tx]

	node  *forge.Node
	stop  context.CancelFunc
	ended chan error
}

// NewClient returns the client of a node with the queues and workers of a River configuration.
func NewClient(pool *pgxpool.Pool, config *river.Config) (*Client, error) {
	text := &strings.Builder{}
	fmt.Fprintf(text, "[database]\nurl = %q\nschema = %q\n[node]\nid = \"examples\"\n[http]\nlisten = \"127.0.0.1:0\"\n",
		pool.Config().ConnString(), Schema)
	for name, queue := range config.Queues {
		fmt.Fprintf(text, "[queues.%s]\nmax_workers = %d\n", name, queue.MaxWorkers)
	}
	cfg, err := forge.ParseConfig("examples", text.String())
	if err != nil {
		return nil, err
	}
	node, err := forge.New(cfg, forge.WithWorkers(config.Workers), forge.WithLogger(config.Logger), forge.WithApply())
	if err != nil {
		return nil, err
	}
	return &Client{Client: node.Client(), node: node, ended: make(chan error, 1)}, nil
}

// Start runs the node and returns once it is ready, or with its error.
func (c *Client) Start(ctx context.Context) error {
	ctx, c.stop = context.WithCancel(ctx)
	go func() { c.ended <- c.node.Run(ctx) }()
	select {
	case <-c.node.Ready():
		return nil
	case err := <-c.ended:
		return err
	}
}

// Stop ends the node in order.
func (c *Client) Stop(context.Context) error {
	c.stop()
	return <-c.ended
}

// TestDatabaseURL is the address of the database that the examples share.
func TestDatabaseURL() string { return os.Getenv("TEST_DATABASE_URL") }

// WaitTimeout is how long an example waits for what it expects.
func WaitTimeout() time.Duration { return time.Minute }

// WaitOrTimeoutN receives n values. It panics if they do not come in WaitTimeout.
func WaitOrTimeoutN[T any](values <-chan T, n int) []T {
	timeout := time.After(WaitTimeout())
	received := make([]T, 0, n)
	for range n {
		select {
		case value := <-values:
			received = append(received, value)
		case <-timeout:
			panic(fmt.Sprintf("%d of %d values came within %s", len(received), n, WaitTimeout()))
		}
	}
	return received
}
