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

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
)

const (
	// shownStatus is how many rows of a list forge status prints; JSON and YAML have all.
	shownStatus = 12
	// statusTimeout bounds all reads of forge status together.
	statusTimeout = 20 * time.Second
)

// clusterStatus is the JSON output of forge status. Its parts have the shapes of the API: those of
// /api/v1/leaders, nodes, job-counts, alerts and doctor.
type clusterStatus struct {
	// Status is healthy or degraded; Problems says why it is degraded.
	Status   string           `json:"status"`
	Problems []string         `json:"problems"`
	Cluster  string           `json:"cluster"`
	At       time.Time        `json:"at"`
	Database databaseStatus   `json:"database"`
	Leaders  []leaderLine     `json:"leaders"`
	Nodes    []nodeLine       `json:"nodes"`
	Crons    cronsStatus      `json:"crons"`
	Jobs     []jobstore.Count `json:"jobs"`
	Alerts   []alerts.Status  `json:"alerts"` // firing ones
	Doctor   []doctor.Finding `json:"doctor"` // warnings and failures
}

type databaseStatus struct {
	Version string `json:"version"`
	Name    string `json:"name"`
	Schema  string `json:"schema"`
	Bytes   int64  `json:"bytes"`
	// Replica is set if no primary answers.
	Replica bool `json:"replica"`
}

type cronsStatus struct {
	cronstore.Summary
	// Failing are crons whose last run failed, or waits for another attempt, at most 100 of them.
	Failing     []string `json:"failing"`
	MoreFailing int      `json:"more_failing,omitempty"`
}

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the whole cluster on one screen, and whether something is wrong", Args: cobra.NoArgs,
		Long: "Shows the database, leaders, nodes, crons, jobs, firing alerts and what forge doctor would say. Exits with 0 if\n" +
			"all is well, and with 1 if a role has no leader, no node is active, a node is dead, a cron is overdue or failing,\n" +
			"an alert fires or a check of forge doctor fails.",
		Example: "  forge status\n  forge status -o json | jq -r '.problems[]'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				ctx, cancel := context.WithTimeout(ctx, statusTimeout)
				defer cancel()
				status, err := a.readStatus(ctx, pool)
				if err != nil {
					return err
				}
				if err := a.printStatus(status); err != nil {
					return err
				}
				if n := len(status.Problems); n > 0 {
					return findingsError{fmt.Errorf("degraded: %s", strings.Join(status.Problems, "; "))}
				}
				return nil
			})
		},
	}
}

// readStatus reads all parts. The doctor, whose checks open connections, runs beside the other reads.
func (a *app) readStatus(ctx context.Context, pool *pgxpool.Pool) (clusterStatus, error) {
	checked := make(chan doctor.Facts, 1)
	go func() { checked <- doctor.Gather(ctx, a.cfg, nil) }()
	status, err := a.readCluster(ctx, pool)
	facts := <-checked
	if err != nil {
		return status, err
	}
	if server := facts.Server; server != nil {
		status.Database = databaseStatus{
			Version: server.Version, Name: server.Database, Schema: a.cfg.Database.Schema, Bytes: server.DatabaseBytes,
			Replica: facts.Pool.Replay.Replica,
		}
	}
	status.Doctor = slices.DeleteFunc(doctor.Examine(facts), func(f doctor.Finding) bool { return f.Status == doctor.OK })
	status.judge()
	return status, nil
}

// readCluster reads what the cluster's tables have. Every list in it is bounded.
func (a *app) readCluster(ctx context.Context, pool *pgxpool.Pool) (status clusterStatus, err error) {
	status.Cluster, status.Problems = a.cfg.Cluster.Name, []string{}
	leaders, err := doctor.LeadersWithHolders(ctx, pool, a.cfg)
	if err != nil {
		return status, err
	}
	if status.Leaders, err = a.withRates(ctx, pool, leaders); err != nil {
		return status, err
	}
	nodes, err := nodestore.New(pool).List(ctx)
	if err != nil {
		return status, err
	}
	if status.Nodes, err = nodeLines(ctx, pool, nodes); err != nil {
		return status, err
	}
	if status.Crons, err = readCronsStatus(ctx, pool); err != nil {
		return status, err
	}
	status.At = status.Crons.Now
	counts, err := jobstore.New(pool).CountsByQueueAndState(ctx)
	if err != nil {
		return status, err
	}
	status.Jobs = append([]jobstore.Count{}, counts...) // never null
	all, err := alerts.New(pool).List(ctx)
	if err != nil {
		return status, err
	}
	status.Alerts = slices.DeleteFunc(all, func(s alerts.Status) bool { return s.State != alerts.Firing })
	causes, recorded, err := eventstore.New(pool).Causes(ctx)
	if recorded {
		status.Problems = append(status.Problems, causes...)
	}
	return status, err
}

func readCronsStatus(ctx context.Context, pool *pgxpool.Pool) (cronsStatus, error) {
	const named = 100
	status := cronsStatus{Failing: []string{}}
	var err error
	if status.Summary, err = cronstore.New(pool).Summarize(ctx); err != nil {
		return status, err
	}
	runs, err := cronstore.New(pool).LastRuns(ctx)
	if err != nil {
		return status, err
	}
	ids := make([]int64, 0, len(runs))
	for _, run := range runs {
		if run.JobID != 0 {
			ids = append(ids, run.JobID)
		}
	}
	states, err := jobstore.New(pool).States(ctx, ids)
	if err != nil {
		return status, err
	}
	for _, run := range runs {
		state := states[run.JobID]
		switch {
		case run.Verdict != cronstore.Failed && state != "discarded" && state != "retryable":
		case len(status.Failing) < named:
			status.Failing = append(status.Failing, run.Cron)
		default:
			status.MoreFailing++
		}
	}
	return status, nil
}

// judge decides whether something is wrong.
func (s *clusterStatus) judge() {
	add := func(format string, args ...any) {
		if problem := fmt.Sprintf(format, args...); !slices.Contains(s.Problems, problem) {
			s.Problems = append(s.Problems, problem)
		}
	}
	if !slices.ContainsFunc(s.Nodes, func(n nodeLine) bool { return n.Present() }) {
		add("no node is active")
	}
	for _, l := range s.Leaders {
		wanted := slices.ContainsFunc(s.Nodes, func(n nodeLine) bool { return n.Present() && slices.Contains(n.Roles, l.Role) })
		if wanted && !l.Leads {
			add("nobody leads %s", l.Role)
		}
	}
	if n := s.Crons.Overdue; n > 0 {
		add("%s overdue", counted(n, "cron is", "crons are"))
	}
	if n := len(s.Crons.Failing) + s.Crons.MoreFailing; n > 0 {
		add("%s failing", counted(n, "cron is", "crons are"))
	}
	if n := len(s.Alerts); n > 0 {
		add("%s", counted(n, "alert fires", "alerts fire"))
	}
	for _, n := range s.Nodes {
		if n.State == nodestore.Dead {
			add("node %s is dead", n.NodeID)
		}
	}
	for _, f := range s.Doctor {
		if f.Status == doctor.Fail {
			add("%s: %s", f.Check, f.Detail)
		}
	}
	s.Status = "healthy"
	if len(s.Problems) > 0 {
		s.Status = "degraded"
	}
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
