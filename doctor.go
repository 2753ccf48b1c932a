package forge

import (
	"context"
	"errors"
	"slices"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/doctor"
)

// diagnose runs the doctor's checks on this node, for the current configuration and for
// errors in the file.
func (n *Node) diagnose(ctx context.Context) ([]cluster.Finding, error) {
	var report config.Report
	var invalid []doctor.Finding
	if path := n.opts.file.path; path != "" {
		_, read, err := config.Load(path, config.LoadOptions{})
		if broken, ok := errors.AsType[*config.InvalidError](err); ok {
			invalid = doctor.Invalid(broken.Report)
		} else if err != nil {
			invalid = []doctor.Finding{{Check: "configuration", Status: doctor.Fail, Detail: err.Error()}}
		}
		report = read
	}
	facts := doctor.Gather(ctx, n.current.Load(), report.Warnings())
	if n.leases != nil {
		facts.Leases = n.leases.Objects(ctx)
	}
	n.addRiverKinds(facts)
	found := doctor.Examine(facts)
	if len(invalid) > 0 {
		found = slices.DeleteFunc(found, func(f doctor.Finding) bool { return f.Check == invalid[0].Check })
		found = append(invalid, found...)
	}
	findings := make([]cluster.Finding, len(found))
	for i, f := range found {
		findings[i] = cluster.Finding{Check: f.Check, Status: string(f.Status), Detail: f.Detail, Remedy: f.Remedy}
	}
	return findings, ctx.Err()
}

// addRiverKinds adds the kinds that have moved to River's client since this node joined.
func (n *Node) addRiverKinds(facts doctor.Facts) {
	if facts.Cluster == nil {
		return
	}
	for i, node := range facts.Cluster.Nodes {
		if node.Incarnation == n.incarnation {
			facts.Cluster.Nodes[i].RiverKinds = n.runner.RiverKinds()
		}
	}
}
