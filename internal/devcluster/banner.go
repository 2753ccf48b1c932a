package devcluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	readyPoll     = 50 * time.Millisecond
	leaderTimeout = 5 * time.Second
)

// announce waits until the cluster is complete and prints the banner, or ends the run.
func (c *cluster) announce(ctx context.Context) {
	if err := c.awaitReady(ctx); err != nil {
		c.fail(err)
		return
	}
	leaders := c.awaitLeaders(ctx)
	if ctx.Err() != nil {
		return
	}
	if c.LogFormat == LogJSON {
		c.logger.InfoContext(ctx, "cluster is ready", "nodes", len(c.nodes), "dashboard", c.nodes[0].address(), "data_dir", c.DataDir)
		return
	}
	_, _ = fmt.Fprint(c.Stdout, c.banner(leaders))
}

// awaitReady requests every node's /readyz until all are ready.
func (c *cluster) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.ReadyTimeout)
	defer cancel()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // its own nodes, whose certificate may be for another host
	}}
	for _, node := range c.nodes {
		for !node.isReady(ctx, client) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s (%s) is not ready after %s: its log above says why",
					node.node.ID, node.address(), c.ReadyTimeout)
			case <-time.After(readyPoll):
			}
		}
	}
	return nil
}

func (p *process) isReady(ctx context.Context, client *http.Client) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address()+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// address returns the node's address for a browser on this machine.
func (p *process) address() string {
	scheme := "http://"
	if p.c.TLS != nil && p.c.TLS() {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(p.node.Listen)
	if err != nil {
		return scheme + p.node.Listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + net.JoinHostPort(host, port)
}

var errVacant = errors.New("a role has no leader yet")

// awaitLeaders waits until every role has a leader; after a while it returns the leaders
// that there are.
func (c *cluster) awaitLeaders(ctx context.Context) []Leader {
	if c.Leaders == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	var last []Leader
	for {
		leaders, err := c.Leaders(ctx, c.database.URL())
		if err == nil {
			last, err = leaders, complete(leaders)
		}
		if err == nil {
			return leaders
		}
		select {
		case <-ctx.Done():
			c.logger.WarnContext(ctx, "not every role has a leader yet", "error", err)
			return last
		case <-time.After(readyPoll):
		}
	}
}

func complete(leaders []Leader) error {
	for _, leader := range leaders {
		if leader.NodeID == "" {
			return fmt.Errorf("%w: %s", errVacant, leader.Role)
		}
	}
	if len(leaders) == 0 {
		return errVacant
	}
	return nil
}

func (c *cluster) banner(leaders []Leader) string {
	var text strings.Builder
	fmt.Fprintf(&text, "\nforge is running: PostgreSQL %s, data in %s\n\n", c.database.Version(), c.DataDir)
	table := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "  dashboard\t%s\n", c.nodes[0].address())
	for _, node := range c.nodes {
		fmt.Fprintf(table, "  %s\t%s\tpid %d%s\n", node.node.ID, node.address(), node.pid.Load(), leads(leaders, node.node.ID))
	}
	_ = table.Flush()
	fmt.Fprintf(&text, "\n  fail over   kill -9 %d   (%s; it is started again)\n", c.victim(leaders).pid.Load(), c.victim(leaders).node.ID)
	fmt.Fprintf(&text, "  command     export FORGE_DATABASE_URL=\"$(cat %s)\"   (in another terminal)\n", filepath.Join(c.DataDir, URLFile))
	fmt.Fprintf(&text, "  try         forge status          the cluster on one screen\n")
	fmt.Fprintf(&text, "              forge cron list       crons, with their last and next ticks\n")
	fmt.Fprintf(&text, "              forge leader watch    see who takes over when you fail over\n")
	fmt.Fprintf(&text, "              %s/jobs   jobs and their output\n", c.nodes[0].address())
	fmt.Fprintf(&text, "  stop        Ctrl-C\n\n")
	return text.String()
}

func leads(leaders []Leader, node string) string {
	var roles []string
	for _, leader := range leaders {
		if leader.NodeID == node {
			roles = append(roles, fmt.Sprintf("%s (term %d)", leader.Role, leader.Term))
		}
	}
	if len(roles) == 0 {
		return ""
	}
	return "   leads " + strings.Join(roles, ", ")
}

// victim returns the node whose death shows most: the leader of the first role.
func (c *cluster) victim(leaders []Leader) *process {
	for _, leader := range leaders {
		for _, node := range c.nodes {
			if node.node.ID == leader.NodeID {
				return node
			}
		}
	}
	return c.nodes[0]
}
