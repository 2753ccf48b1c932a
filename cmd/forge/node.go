package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

func (a *app) nodeCommand() *cobra.Command {
	return group("node", "Show the nodes of the cluster, and drain them",
		a.watchable(a.nodeListCommand()), a.watchable(a.nodeShowCommand()), a.nodeDrainCommand(), a.nodeUndrainCommand())
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
			return nodeLines(ctx, pool, nodestore.Orders.Sort(sort.name, nodestore.FilterTable.Select(where.Filter, time.Time{}, nodes)))
		}),
	}
	where.addTo(cmd.Flags(), nodestore.FilterTable.Keys(), "nodes", "state:active tag:zone=eu*", "operations.md")
	sort.addTo(cmd.Flags(), nodestore.Orders.Names())
	return cmd
}

func (a *app) nodeShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show NODE", Short: "Show a node, the roles that it leads, and whether it is safe to stop", Args: cobra.ExactArgs(1),
		Long: "Shows a node. A node is safe to stop once it is drained, leads no role and runs no job.\n" +
			"forge job list --filter node:NODE lists its jobs.",
		Example: "  forge node show node-2",
		RunE: a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, args []string) error {
			return a.showNode(ctx, pool, args[0])
		}),
	}
}

// showNode prints a node.
func (a *app) showNode(ctx context.Context, pool *pgxpool.Pool, id string) error {
	nodes, err := nodestore.New(pool).List(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(nodes, func(n nodestore.Node) bool { return n.NodeID == id })
	if i < 0 {
		return unknown("node", id, names(nodes, func(n nodestore.Node) string { return n.NodeID }), "forge node list")
	}
	lines, err := nodeLines(ctx, pool, nodes[i:i+1])
	if err != nil {
		return err
	}
	shown := shownNode{nodeLine: lines[0]}
	if shown.Recent, err = aggregator.NewStore(pool).WorkOf(ctx, "node", id, shown.Now, shown.StartedAt); err != nil {
		return err
	}
	return one(a, shown, shownNodeColumns())
}

// shownNode is a node with what it did in the last minutes.
type shownNode struct {
	nodeLine

	Recent *aggregator.Work `json:"recent,omitempty"`
}

func shownNodeColumns() []column[shownNode] {
	columns := make([]column[shownNode], len(nodeColumns), len(nodeColumns)+1)
	for i, c := range nodeColumns {
		columns[i] = column[shownNode]{title: c.title, wide: c.wide, named: c.named, show: func(n shownNode) string { return c.show(n.nodeLine) }}
	}
	return append(columns, column[shownNode]{title: "last minutes", show: func(n shownNode) string { return workNote(n.Recent) }})
}

// nodeLine is a node with what stopping it would interrupt, and with the difference of its file
// from the configuration in force.
type nodeLine struct {
	nodestore.Node
	handover.Duty
	Drift config.Diff `json:"drift,omitempty"`
}

// nodeLines reads the duties of nodes, and how the files of present ones differ.
func nodeLines(ctx context.Context, pool *pgxpool.Pool, nodes []nodestore.Node) ([]nodeLine, error) {
	leaders, err := leaderstore.New(pool).Leaders(ctx)
	if err != nil {
		return nil, err
	}
	duties, err := handover.Duties(ctx, jobstore.New(pool), nodes, leaders)
	if err != nil {
		return nil, err
	}
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
		lines[i].Node, lines[i].Duty = n, duties[n.NodeID]
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

// stopNote reports whether a node is safe to stop, or why a drained node is not.
func stopNote(n nodeLine) string {
	switch {
	case n.SafeToStop:
		return "yes"
	case n.State == nodestore.Draining:
		return "no: " + strings.TrimSuffix(n.StopNote, ".")
	default:
		return "-"
	}
}

var nodeColumns = []column[nodeLine]{
	{title: "node", show: func(n nodeLine) string { return n.NodeID }},
	{title: "state", show: func(n nodeLine) string { return n.State }},
	{title: "running", show: func(n nodeLine) string { return fmt.Sprintf("%d of %d", n.Running, n.Slots) }},
	{title: "heartbeat", show: func(n nodeLine) string { return span(n.Now.Sub(n.LastHeartbeatAt)) + " ago" }},
	{title: "started", show: func(n nodeLine) string { return ago(n.StartedAt, n.Now) }},
	{title: "version", show: func(n nodeLine) string { return n.Version }},
	{title: "safe to stop", show: stopNote},
	{title: "api", show: func(n nodeLine) string { return dash(n.APIURL) }},
	{title: "leads", wide: true, show: func(n nodeLine) string { return dash(strings.Join(n.Leads, ",")) }},
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
