package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

func (a *app) nodeCommand() *cobra.Command {
	return group("node", "Show the nodes of the cluster, and drain them",
		a.watchable(a.nodeListCommand()), a.nodeDrainCommand(), a.nodeUndrainCommand())
}

func (a *app) nodeListCommand() *cobra.Command {
	var where whereFlag
	var sort sortFlag
	cmd := &cobra.Command{
		Use: "list", Short: "List the nodes", Args: cobra.NoArgs,
		Example: "  forge node list -o wide\n  forge node list --filter 'state:active tag:zone=eu*'",
		RunE: listed(a, nodeColumns, func(ctx context.Context, pool *pgxpool.Pool, _ []string) ([]nodeLine, error) {
			nodes, err := nodestore.New(pool).List(ctx)
			if err != nil {
				return nil, err
			}
			return withDrift(ctx, pool, nodestore.Orders.Sort(sort.name, nodestore.FilterTable.Select(where.Filter, time.Time{}, nodes)))
		}),
	}
	where.addTo(cmd.Flags(), nodestore.FilterTable.Keys(), "nodes", "state:active tag:zone=eu*", "operations.md")
	sort.addTo(cmd.Flags(), nodestore.Orders.Names())
	return cmd
}

// nodeLine is a node with the difference of its file from the configuration in force.
type nodeLine struct {
	nodestore.Node
	Drift config.Diff `json:"drift,omitempty"`
}

// withDrift adds to each present node how its file differs.
func withDrift(ctx context.Context, pool *pgxpool.Pool, nodes []nodestore.Node) ([]nodeLine, error) {
	var hashes []string
	for _, n := range nodes {
		if n.Present() {
			hashes = append(hashes, n.ConfigHash)
		}
	}
	_, drifts, err := cronstore.New(pool).Drifts(ctx, hashes)
	if err != nil {
		return nil, err
	}
	lines := make([]nodeLine, len(nodes))
	for i, n := range nodes {
		lines[i].Node = n
		if n.Present() {
			lines[i].Drift = drifts[n.ConfigHash]
		}
	}
	return lines, nil
}

// fileNote describes why a node does not use its file as it is.
func fileNote(n nodeLine) string {
	if n.ConfigWaiting != "" {
		return "waits for forge apply --yes: " + n.ConfigWaiting
	}
	if n.ConfigError != "" {
		return "refused: " + n.ConfigError
	}
	if len(n.ConfigRestart) > 0 {
		return "needs a restart: " + strings.Join(n.ConfigRestart, ", ")
	}
	return "-"
}

// reportNote describes whether the node reports its metrics.
func reportNote(n nodeLine) string {
	switch {
	case !n.Present():
		return "-"
	case n.Reporting:
		return "reported " + ago(n.ReportedAt, n.Now)
	case n.ReportedAt.IsZero():
		return "none reported"
	default:
		return "stopped " + ago(n.ReportedAt, n.Now)
	}
}

var nodeColumns = []column[nodeLine]{
	{title: "node", show: func(n nodeLine) string { return n.NodeID }},
	{title: "state", show: func(n nodeLine) string { return n.State }},
	{title: "running", show: func(n nodeLine) string { return fmt.Sprintf("%d of %d", n.Running, n.Slots) }},
	{title: "heartbeat", show: func(n nodeLine) string { return span(n.Now.Sub(n.LastHeartbeatAt)) + " ago" }},
	{title: "started", show: func(n nodeLine) string { return ago(n.StartedAt, n.Now) }},
	{title: "version", show: func(n nodeLine) string { return n.Version }},
	{title: "api", show: func(n nodeLine) string { return dash(n.APIURL) }},
	{title: "tzdata", wide: true, show: func(n nodeLine) string { return dash(n.TZData) }},
	{title: "pid", wide: true, show: func(n nodeLine) string { return strconv.Itoa(n.PID) }},
	{title: "host", wide: true, show: func(n nodeLine) string { return n.Hostname }},
	{title: "roles", wide: true, show: func(n nodeLine) string { return dash(strings.Join(n.Roles, ",")) }},
	{title: "capabilities", wide: true, show: func(n nodeLine) string { return dash(strings.Join(n.Capabilities, ",")) }},
	{title: "config", wide: true, show: func(n nodeLine) string { return dash(n.ConfigHash) }},
	{title: "drift", wide: true, show: func(n nodeLine) string { return dash(n.Drift.String()) }},
	{title: "file", wide: true, show: fileNote},
	{title: "metrics", wide: true, show: reportNote},
	{title: "incarnation", wide: true, show: func(n nodeLine) string { return n.Incarnation }},
}
