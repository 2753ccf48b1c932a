package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/incident"
)

func (a *app) leaderIncidentCommand() *cobra.Command {
	var term int64 // 0: the newest
	return &cobra.Command{
		Use: "incident ROLE [TERM]", Short: "Show what happened when a role changed hands: the gap, delayed ticks, rescued jobs",
		Long: "Shows how the term before ended, when that was noticed, how long nobody led, which ticks were\n" +
			"delayed and by how much, which jobs were rescued, what was lost, and the events of those seconds.\n" +
			"Without TERM it shows the newest term or, if the role has no leader, the time since the last one.",
		Args:    cobra.RangeArgs(1, 2),
		Example: "  forge leader incident scheduler 12\n  forge leader incident scheduler -o json",
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			if len(args) < 2 {
				return nil
			}
			if term, err = strconv.ParseInt(args[1], 10, 64); err != nil || term < 1 {
				return usageError(fmt.Errorf("%q is no term; want a number from forge leader history", args[1]))
			}
			return nil
		},
		RunE: a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, args []string) error {
			found, err := incident.New(pool, a.cfg.Retention.CronTicks.Std()).Read(ctx, args[0], term)
			if errors.Is(err, incident.ErrNotFound) {
				return noIncident(ctx, pool, args[0], term)
			}
			if err != nil {
				return err
			}
			return a.showIncident(&found)
		}),
	}
}

func noIncident(ctx context.Context, pool *pgxpool.Pool, role string, term int64) error {
	if term == 0 {
		return unknownRole(ctx, pool, role)
	}
	return notFound("the history has no term %d of %s; see forge leader history --role %s", term, role, role)
}

func (a *app) showIncident(i *incident.Incident) error {
	if !a.tabular() {
		return a.document(i)
	}
	a.printf("%s\n\n", harmless(i.Summary))
	if err := one(a, i, incidentProperties); err != nil {
		return err
	}
	if i.Ticks != nil && len(i.Ticks.Items) > 0 {
		a.printf("\ndelayed ticks, the worst first:\n")
		if err := list(a, i.Ticks.Items, gapTickColumns); err != nil {
			return err
		}
	}
	if ticks := i.Lost.Ticks; ticks != nil && len(ticks.Lost)+len(ticks.Waiting) > 0 {
		a.printf("\nticks without a row in the ledger:\n")
		if err := list(a, slices.Concat(ticks.Lost, ticks.Waiting), dueTickColumns); err != nil {
			return err
		}
	}
	if len(i.Events) == 0 {
		return nil
	}
	a.printf("\nevents:\n")
	return list(a, i.Events, eventColumns)
}

var incidentProperties = []column[*incident.Incident]{
	{title: "role", show: func(i *incident.Incident) string { return i.Role }},
	{title: "term", show: func(i *incident.Incident) string {
		if i.Kind == incident.NoLeader {
			return fmt.Sprintf("%d, not begun", i.Term)
		}
		return strconv.FormatInt(i.Term, 10)
	}},
	{title: "kind", show: func(i *incident.Incident) string { return kindWords[i.Kind] }},
	{title: "old leader", show: func(i *incident.Incident) string {
		if i.Old == nil {
			return ""
		}
		return fmt.Sprintf("%s, term %d, since %s", i.Old.NodeID, i.Old.Term, stamp(i.Old.AcquiredAt))
	}},
	{title: "its end", show: func(i *incident.Incident) string {
		if i.Old == nil {
			return ""
		}
		return fmt.Sprintf("%s, last known to lead at %s", dash(i.Old.EndReason), stamp(i.Old.EndedAt))
	}},
	{title: "its process", show: oldProcess},
	{title: "requested", show: func(i *incident.Incident) string { return sinceEnd(i, oldOf(i).AskedAt) }},
	{title: "noticed", show: func(i *incident.Incident) string {
		if i.Kind == incident.HandOver {
			return "" // the old leader ended the term itself
		}
		return sinceEnd(i, i.DetectedAt)
	}},
	{title: "election", show: func(i *incident.Incident) string { return sinceEnd(i, i.ElectionAt) }},
	{title: "new leader", show: func(i *incident.Incident) string {
		if i.NodeID == "" {
			return "(none)"
		}
		return fmt.Sprintf("%s, from %s", i.NodeID, stamp(i.ElectedAt))
	}},
	{title: "gap", show: func(i *incident.Incident) string {
		if i.GapMS == nil {
			return ""
		}
		return span(i.Gap())
	}},
	{title: "first tick", show: func(i *incident.Incident) string {
		if i.FirstTick == nil {
			return ""
		}
		return fmt.Sprintf("%s of %s, late by %s, recorded %s", tickStamp(i.FirstTick.Tick), i.FirstTick.Cron, milliseconds(i.FirstTick.LatenessMS), sinceEnd(i, i.FirstTick.RecordedAt))
	}},
	{title: "delayed ticks", show: delayedTicks},
	{title: "rescued jobs", show: rescuedJobs},
	{title: "lost", show: lost},
}

var kindWords = map[string]string{
	incident.FirstTerm: "first term", incident.HandOver: "hand-over", incident.Failover: "failover", incident.NoLeader: "no leader",
}

// oldOf returns the old leader, or an empty one.
func oldOf(i *incident.Incident) incident.OldLeader {
	if i.Old == nil {
		return incident.OldLeader{}
	}
	return *i.Old
}

func oldProcess(i *incident.Incident) string {
	old := oldOf(i)
	if old.GoneAt.IsZero() {
		return old.Process
	}
	return old.Process + " " + sinceEnd(i, old.GoneAt)
}

// sinceEnd shows an instant with its distance from the end of the old term.
func sinceEnd(i *incident.Incident, at time.Time) string {
	ended := oldOf(i).EndedAt
	switch {
	case at.IsZero():
		return ""
	case ended.IsZero():
		return stamp(at)
	case at.Before(ended):
		return fmt.Sprintf("%s (%s before the end)", stamp(at), span(ended.Sub(at)))
	default:
		return fmt.Sprintf("%s (%s after the end)", stamp(at), span(at.Sub(ended)))
	}
}

func delayedTicks(i *incident.Incident) string {
	switch ticks := i.Ticks; {
	case ticks == nil:
		return ""
	case ticks.Count == 0:
		return "none"
	default:
		var parts []string
		for _, verdict := range slices.Sorted(maps.Keys(ticks.Verdicts)) {
			parts = append(parts, fmt.Sprintf("%d %s", ticks.Verdicts[verdict], verdict))
		}
		said := fmt.Sprintf("%d (%s), the worst by %s", ticks.Count, strings.Join(parts, ", "), milliseconds(ticks.WorstMS))
		if ticks.More {
			said += "; too many to read all"
		}
		return said
	}
}

func rescuedJobs(i *incident.Incident) string {
	if i.Old == nil {
		return ""
	}
	switch {
	case !i.EventsKept:
		return "unknown, the events of that time are past their retention"
	case i.Jobs.Rescued == 0:
		return "none"
	}
	ids := make([]string, len(i.Jobs.IDs))
	for n, id := range i.Jobs.IDs {
		ids[n] = strconv.FormatInt(id, 10)
	}
	said := fmt.Sprintf("%d: job %s", i.Jobs.Rescued, strings.Join(ids, ", "))
	if i.Jobs.Rescued > len(ids) {
		said += ", ..."
	}
	return said
}

func lost(i *incident.Incident) string {
	switch {
	case i.Old == nil:
		return ""
	case i.Lost.Nothing && i.Lost.Ticks == nil:
		return "nothing"
	case i.Lost.Nothing && i.Lost.Ticks.Ticks == 0:
		return "nothing (no tick was due, no job is orphaned)"
	case i.Lost.Nothing:
		return fmt.Sprintf("nothing (%d due ticks of %d crons are in the ledger, no job is orphaned)", i.Lost.Ticks.Ticks, i.Lost.Ticks.Crons)
	}
	var parts []string
	if ticks := i.Lost.Ticks; ticks != nil {
		parts = append(parts, fmt.Sprintf("%d ticks, %d not recorded yet", ticks.LostCount, ticks.WaitingCount))
	}
	parts = append(parts, fmt.Sprintf("%d orphaned jobs", i.Jobs.Orphaned))
	if i.Lost.Unchecked != "" {
		parts = append(parts, i.Lost.Unchecked)
	}
	return strings.Join(parts, "; ")
}

var gapTickColumns = []column[cronstore.Tick]{
	{title: "cron", show: func(t cronstore.Tick) string { return t.Cron }},
	{title: "tick", show: func(t cronstore.Tick) string { return tickStamp(t.Tick) }},
	{title: "verdict", show: func(t cronstore.Tick) string {
		if t.Count > 1 {
			return fmt.Sprintf("%s, %d ticks", t.Verdict, t.Count)
		}
		return string(t.Verdict)
	}},
	{title: "late by", show: func(t cronstore.Tick) string { return milliseconds(t.LatenessMS) }},
	{title: "job", show: func(t cronstore.Tick) string { return number(t.JobID) }},
	{title: "recorded", wide: true, show: func(t cronstore.Tick) string { return stamp(t.RecordedAt) }},
	{title: "term", wide: true, show: func(t cronstore.Tick) string { return strconv.FormatInt(t.Term, 10) }},
}

var dueTickColumns = []column[cronstore.DueTick]{
	{title: "cron", show: func(t cronstore.DueTick) string { return t.Cron }},
	{title: "tick", show: func(t cronstore.DueTick) string { return tickStamp(t.Tick) }},
}
