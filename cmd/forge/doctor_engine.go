package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/engine"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// probeEngine prints what the server can do. It fails if forge refuses the server with this
// configuration.
func (a *app) probeEngine(ctx context.Context, cfg *config.Config) error {
	report, err := engine.Probe(ctx, engine.Options{URL: cfg.Database.URL, LeaderURL: cfg.Database.LeaderURL, Schema: cfg.Database.Schema})
	if errors.Is(err, postgres.ErrUnreachable) {
		return databaseError(err)
	}
	if err != nil {
		return err
	}
	if err := a.showEngine(report); err != nil {
		return err
	}
	election := cfg.Cluster.LeaderElection
	switch {
	case report.Refused():
		return findingsError{errors.New(report.Reason)}
	case election.ByLease() || report.Election != engine.Lease:
		return nil
	}
	return findingsError{fmt.Errorf("this server does not do with cluster.leader_election.strategy = %q: set it to %q on every node",
		election.Strategy, engine.Lease)}
}

func (a *app) showEngine(report engine.Report) error {
	if !a.tabular() {
		return a.document(report)
	}
	err := list(a, report.Results, []column[engine.Result]{
		{title: "probe", show: func(r engine.Result) string { return r.Probe }},
		{title: "status", show: func(r engine.Result) string { return string(r.Status) }},
		{title: "found", show: func(r engine.Result) string { return r.Found }},
		{title: "used for", show: func(r engine.Result) string { return r.Meaning }},
	})
	if err != nil {
		return err
	}
	a.printf("\nserver: %s\n", harmless(report.Server))
	if report.Refused() {
		return nil // the error has the reason
	}
	a.printf("strategy: %s, notifications: %s (%s)\n", report.Election, report.Notifications, harmless(report.Reason))
	return nil
}
