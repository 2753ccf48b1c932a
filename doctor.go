package forge

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

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
	found := doctor.Examine(doctor.Gather(ctx, n.current.Load(), report.Warnings()))
	if len(invalid) > 0 {
		found = slices.DeleteFunc(found, func(f doctor.Finding) bool { return f.Check == invalid[0].Check })
		found = append(invalid, found...)
	}
	found = append(found, n.riverKinds()...)
	findings := make([]cluster.Finding, len(found))
	for i, f := range found {
		findings[i] = cluster.Finding{Check: f.Check, Status: string(f.Status), Detail: f.Detail, Remedy: f.Remedy}
	}
	return findings, ctx.Err()
}

// riverKinds lists the kinds whose jobs River's client runs instead of forge's executor.
func (n *Node) riverKinds() []doctor.Finding {
	kinds := n.runner.RiverKinds()
	if len(kinds) == 0 {
		return nil
	}
	var texts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		texts = append(texts, kind+" ("+kinds[kind]+")")
	}
	return []doctor.Finding{{
		Check: "executor", Status: doctor.OK,
		Detail: "River's client runs the jobs of " + strings.Join(texts, ", "),
	}}
}
