package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// maxDays is how many days of runs a plan compares at most.
const maxDays = 366

func (a *app) planCommand() *cobra.Command {
	var (
		days     int
		exitCode bool
	)
	cmd := &cobra.Command{
		Use: "plan", Short: "Show what this file would change, and which runs it adds and removes", Args: cobra.NoArgs,
		Long: "plan compares the file with the configuration in force and changes nothing. It needs a\n" +
			"file: --config, $FORGE_CONFIG or ./forge.toml.",
		Example: "  forge plan --days 30\n  forge plan --exit-code   # 7 if the file would change anything",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if days < 1 || days > maxDays {
				return usageError(fmt.Errorf("--days %d: want 1 to %d", days, maxDays))
			}
			cfg, err := a.loadFile(cmd.Context(), "plan")
			if err != nil {
				return err
			}
			return a.connectedToRead(cmd.Context(), cfg, func(ctx context.Context, pool *pgxpool.Pool) error {
				plan, err := forge.MakePlan(ctx, pool, cfg, time.Duration(days)*24*time.Hour)
				if err != nil {
					return err
				}
				if err := a.showPlan(plan); err != nil {
					return err
				}
				if exitCode && !plan.Changes.Empty() {
					return &codedError{exitChanges, fmt.Errorf("the file would change what is applied")}
				}
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&days, "days", 7, "number of days of runs to compare")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 7 if the file would change anything")
	return cmd
}

func (a *app) showPlan(plan forge.Plan) error {
	if !a.tabular() {
		return a.document(plan)
	}
	a.printf("%s\n", planState(plan))
	for _, section := range planSections(plan.Changes) {
		a.planSection(section, plan.Changes[section])
	}
	for _, rename := range plan.Renamed[:min(len(plan.Renamed), shownChanges)] {
		a.printf("\n%s -> %s is a rename, which removes one cron and adds another: %[1]s keeps its history, and %[2]s starts from now.\n",
			rename.From, rename.To)
	}
	a.moreChanges("\n", len(plan.Renamed)-shownChanges, "renames")
	a.planEffects(plan)
	a.planRuns(plan)
	return nil
}

// planEffects says what the plan means for the waiting jobs.
func (a *app) planEffects(plan forge.Plan) {
	if len(plan.RemovedQueues)+len(plan.Limits) > 0 {
		a.printf("\n")
	}
	for _, queue := range plan.RemovedQueues[:min(len(plan.RemovedQueues), shownChanges)] {
		a.printf("%s\n", queue)
	}
	a.moreChanges("", len(plan.RemovedQueues)-shownChanges, "removed queues with waiting jobs")
	for _, effect := range plan.Limits {
		a.printf("%s\n", effect)
	}
	if plan.UncountedLimits > 0 {
		a.printf("\nFurther new or changed limits, for which nothing was counted: %d\n", plan.UncountedLimits)
	}
}

func planState(plan forge.Plan) string {
	switch {
	case plan.State == cronstore.StateInForce:
		return "This file is in force: nothing changes."
	case plan.Held != "":
		return "A node that reads this file leaves the cluster as it is: " + plan.Held + ".\nforge apply --yes puts it in force."
	case plan.State == cronstore.StateSuperseded:
		return "A newer file has superseded this one: nodes leave it alone, and forge apply puts it in force."
	case plan.InForce == "":
		return "No file is in force yet: the first node that reads this one applies it."
	default:
		return "This file is new: the first node that reads it applies it."
	}
}

// planSections returns the known sections in a fixed order, then any others.
func planSections(diff config.Diff) []string {
	known := []string{"crons", "jobs", "queues", "alerts"}
	for _, name := range slices.Sorted(maps.Keys(diff)) {
		if !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	return known
}

func (a *app) planSection(name string, diff config.SectionDiff) {
	if diff.Empty() {
		return
	}
	a.printf("\n%s: %d to add, %d to change, %d to remove, %d unchanged\n",
		name, len(diff.Added), len(diff.Changed), len(diff.Removed), diff.Unchanged)
	a.planNames("+", diff.Added)
	for _, changed := range diff.Changed[:min(len(diff.Changed), shownChanges)] {
		a.printf("  ~ %s\n", changed.Name)
		for _, field := range changed.Fields {
			a.printf("      %s: %s -> %s\n", field.Key, planValue(field.From), planValue(field.To))
		}
	}
	a.moreChanges("  ~ ", len(diff.Changed)-shownChanges, "changed")
	a.planNames("-", diff.Removed)
}

// shownChanges bounds the changes of one sort that commands list as text.
const shownChanges = 100

func (a *app) planNames(sign string, names []string) {
	for _, name := range names[:min(len(names), shownChanges)] {
		a.printf("  %s %s\n", sign, name)
	}
	a.moreChanges("  "+sign+" ", len(names)-shownChanges, "")
}

// moreChanges says how many changes are not listed.
func (a *app) moreChanges(prefix string, more int, what string) {
	if more > 0 {
		a.printf("%s%s\n", prefix, strings.TrimSpace("and "+humanize.Comma(int64(more))+" more "+what))
	}
}

// planValue shows a value as JSON on one line, cut after 100 characters.
func planValue(value any) string {
	if value == nil {
		return "(not set)"
	}
	text := &strings.Builder{}
	encoder := json.NewEncoder(text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Sprint(value)
	}
	const most = 100
	line := []rune(strings.TrimSpace(text.String()))
	if len(line) > most {
		return string(line[:most]) + "..."
	}
	return string(line)
}

func (a *app) planRuns(plan forge.Plan) {
	days := int(plan.Until.Sub(plan.From).Hours() / 24)
	if len(plan.Runs) == 0 && plan.Uncompared == 0 {
		a.printf("\nNo run of the next %d days appears or vanishes.\n", days)
		return
	}
	a.printf("\nruns of the next %d days:\n", days)
	for _, change := range plan.Runs[:min(len(plan.Runs), shownChanges)] {
		a.printf("  %s: %s appear, %s vanish%s\n", change.Cron,
			humanize.Comma(int64(change.Appear)), humanize.Comma(int64(change.Vanish)), planHorizon(change, plan.Until))
		a.planInstants("+", change.FirstAppearing, change.Appear)
		a.planInstants("-", change.FirstVanishing, change.Vanish)
	}
	a.moreChanges("  ", max(0, len(plan.Runs)-shownChanges)+plan.Uncompared, "crons")
}

// planHorizon describes where counting stopped if there were too many runs to count them all.
func planHorizon(change cronstore.RunChange, until time.Time) string {
	if !change.Until.Before(until) {
		return ""
	}
	return ", counted until " + change.Until.Format(time.RFC3339)
}

func (a *app) planInstants(sign string, first []time.Time, all int) {
	for _, at := range first {
		a.printf("    %s %s\n", sign, at.Format("Mon "+time.RFC3339))
	}
	if rest := all - len(first); rest > 0 {
		a.printf("    %s and %s more\n", sign, humanize.Comma(int64(rest)))
	}
}
