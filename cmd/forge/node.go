package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/nodestore"
)

func (a *app) nodeCommand() *cobra.Command {
	return group("node", "See the nodes of the cluster, and drain them",
		a.nodeListCommand(), a.nodeDrainCommand(), a.nodeUndrainCommand())
}

func (a *app) nodeListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the nodes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				nodes, err := nodestore.List(ctx, pool)
				if err != nil {
					return err
				}
				return list(a, nodes, nodeColumns)
			})
		},
	}
}

var nodeColumns = []column[nodestore.Node]{
	{title: "node", show: func(n nodestore.Node) string { return n.NodeID }},
	{title: "state", show: func(n nodestore.Node) string { return n.State }},
	{title: "running", show: func(n nodestore.Node) string { return fmt.Sprintf("%d of %d", n.Running, n.Slots) }},
	{title: "heartbeat", show: func(n nodestore.Node) string { return span(n.Now.Sub(n.LastHeartbeatAt)) + " ago" }},
	{title: "started", show: func(n nodestore.Node) string { return ago(n.StartedAt, n.Now) }},
	{title: "version", show: func(n nodestore.Node) string { return n.Version }},
	{title: "api", show: func(n nodestore.Node) string { return dash(n.APIURL) }},
	{title: "pid", wide: true, show: func(n nodestore.Node) string { return strconv.Itoa(n.PID) }},
	{title: "host", wide: true, show: func(n nodestore.Node) string { return n.Hostname }},
	{title: "roles", wide: true, show: func(n nodestore.Node) string { return dash(strings.Join(n.Roles, ",")) }},
	{title: "capabilities", wide: true, show: func(n nodestore.Node) string { return dash(strings.Join(n.Capabilities, ",")) }},
	{title: "config", wide: true, show: func(n nodestore.Node) string { return dash(n.ConfigHash) }},
	{title: "incarnation", wide: true, show: func(n nodestore.Node) string { return n.Incarnation }},
}
