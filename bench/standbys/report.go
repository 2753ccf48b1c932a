package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

func report(out io.Writer, b *bench, sizes, times []row) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "nodes\tserver processes\tchecks/s\trenewals/s\twatches/s\tlook-arounds/s\tother/s\tall/s\tper node and check\tCPU %\twith heartbeats/s\tCPU %\t")
	values := map[string]float64{"idle_cpu_percent": rig.Round(b.idle)}
	for _, r := range sizes {
		fmt.Fprintf(table, "%d\t%d\t%s\n", r.nodes, r.backends, r.cells())
		r.record(values, fmt.Sprintf("nodes_%d_", r.nodes))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	table = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "profile\tcheck\tlease\trefresh\tchecks/s\trenewals/s\twatches/s\tlook-arounds/s\tother/s\tall/s\tper node and check\tCPU %\twith heartbeats/s\tCPU %\t")
	for _, r := range times {
		fmt.Fprintf(table, "%s\t%v\t%v\t%v\t%s\n", r.name, r.check, r.lease, r.refresh, r.cells())
		r.record(values, "profile_"+r.name+"_")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return rig.Result{Bench: "standbys", Ratios: map[string]float64{}, Values: values, Settings: map[string]any{
		"postgresql": b.rig.Server.Version(), "seconds": b.length.Seconds(), "machine": rig.Machine(), "go": runtime.Version(),
		"check_interval": standard.check.String(), "lease_duration": standard.lease.String(), "profile_nodes": profileNodes,
	}}.Print(out)
}

func (r row) cells() string {
	var cells strings.Builder
	for _, kind := range []string{"checks", "renewals", "watches", "look-arounds", "other"} {
		fmt.Fprintf(&cells, "%.1f\t", r.election.perSecond[kind])
	}
	fmt.Fprintf(&cells, "%.1f\t%.2f\t%.1f\t", r.election.total, r.share(), r.election.cpu)
	if r.beating.total > 0 {
		fmt.Fprintf(&cells, "%.1f\t%.1f\t", r.beating.total, r.beating.cpu)
	} else {
		cells.WriteString("-\t-\t")
	}
	return cells.String()
}

// share is how many statements a node costs in a check interval, without what does
// not grow with the nodes: renewals and the deputies' watches.
func (r row) share() float64 {
	growing := r.election.total - r.election.perSecond["renewals"] - r.election.perSecond["watches"]
	return growing / float64(r.nodes) * r.check.Seconds()
}

func (r row) record(values map[string]float64, prefix string) {
	values[prefix+"statements_per_second"] = rig.Round(r.election.total)
	values[prefix+"per_node_and_check"] = rig.Round(r.share())
	values[prefix+"cpu_percent"] = rig.Round(r.election.cpu)
	values[prefix+"server_processes"] = float64(r.backends)
	if r.beating.total > 0 {
		values[prefix+"with_heartbeats_per_second"] = rig.Round(r.beating.total)
		values[prefix+"with_heartbeats_cpu_percent"] = rig.Round(r.beating.cpu)
	}
}
