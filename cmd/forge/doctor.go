package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/kubernetes"
	"github.com/forge-scheduler/forge/roles"
)

func (a *app) doctorCommand() *cobra.Command {
	var ofEngine bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the database, the connection to it and the cluster for what would break leadership",
		Args: cobra.NoArgs,
		Long: "Check the database, the connection to it and the cluster for what would break leadership. It changes nothing.\n\n" +
			"With --engine it probes the server for the features on which forge relies, whatever the server calls itself: locks, notifications, " +
			"leases, DDL. It needs no tables of forge. It creates a schema of its own and drops it.",
		Example: "  forge doctor --config /etc/forge/forge.toml\n  forge doctor --engine -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, report, err := a.loadReport(config.LoadOptions{})
			if invalid, ok := errors.AsType[*config.InvalidError](err); ok {
				return errors.Join(a.showFindings(doctor.Invalid(invalid.Report)), configError(errors.New("the configuration cannot be used")))
			}
			if err != nil {
				return configError(err)
			}
			if err := requireDatabase(cfg); err != nil {
				return err
			}
			if ofEngine {
				return a.probeEngine(cmd.Context(), cfg)
			}
			facts := doctor.Gather(cmd.Context(), cfg, report.Warnings())
			facts.Leases = leaseObjects(cmd.Context(), cfg)
			if err := cmd.Context().Err(); errors.Is(err, context.Canceled) {
				return err
			}
			findings := doctor.Examine(facts)
			if err := a.showFindings(findings); err != nil {
				return err
			}
			if err := verdict(facts, findings); err != nil {
				return findingsError{err}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&ofEngine, "engine", false, "probe the server for the features on which forge relies")
	return cmd
}

func (a *app) showFindings(findings []doctor.Finding) error {
	return list(a, findings, []column[doctor.Finding]{
		{title: "status", show: func(f doctor.Finding) string { return string(f.Status) }},
		{title: "check", show: func(f doctor.Finding) string { return f.Check }},
		{title: "found", show: func(f doctor.Finding) string {
			if f.Remedy == "" {
				return f.Detail
			}
			return f.Detail + "\n→ " + f.Remedy
		}},
	})
}

func verdict(facts doctor.Facts, findings []doctor.Finding) error {
	failed := 0
	for _, f := range findings {
		if f.Status == doctor.Fail {
			failed++
		}
	}
	switch {
	case failed == 0:
		return nil
	case facts.Pool.Err != nil && facts.Election.Err != nil:
		return databaseError(errors.New("the database cannot be reached"))
	default:
		return fmt.Errorf("%d of %d checks failed", failed, len(findings))
	}
}

// leaseObjects reads the Lease objects of the built-in roles, if Kubernetes elects.
func leaseObjects(ctx context.Context, cfg *config.Config) []roles.LeaseObject {
	if !cfg.Cluster.LeaderElection.ByKubernetes() {
		return nil
	}
	var names []string
	for _, role := range roles.All() {
		names = append(names, string(role))
	}
	leases, err := kubernetes.New().NewLeases(cfg, names, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return []roles.LeaseObject{{Err: err}}
	}
	return leases.Objects(ctx)
}
