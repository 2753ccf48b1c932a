package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
)

// pausedCron is the JSON output of forge cron pause and forge cron resume for one cron.
type pausedCron struct {
	cronstore.Cron
	Changed bool `json:"changed"`
	// now is the database's time.
	now time.Time
}

// pausedCrons is their JSON output for many.
type pausedCrons struct {
	// Crons is how many crons were to change.
	Crons int `json:"crons"`
	cronstore.PausedMany
	DryRun bool `json:"dry_run"`
}

// pauseFlags select the crons of forge cron pause and forge cron resume.
type pauseFlags struct {
	where            whereFlag
	all, dryRun, yes bool
	reason           string
}

func (f *pauseFlags) many(names []string) bool {
	return f.all || f.where.Filter != nil || len(names) != 1
}

func (f *pauseFlags) check(names []string) error {
	selected := 0
	for _, is := range []bool{len(names) > 0, f.where.Filter != nil, f.all} {
		if is {
			selected++
		}
	}
	switch {
	case selected == 0:
		return errors.New("which crons? Name them, or use --filter or --all")
	case selected > 1:
		return errors.New("crons are selected by names, by --filter or by --all, and by one of these alone")
	case len(names) > 0 && (f.dryRun || f.yes):
		return errors.New("--dry-run and --yes go with --filter and --all")
	}
	return nil
}

func (a *app) cronPauseCommand() *cobra.Command {
	return a.holdCommand("pause", "Pause crons: their ticks are recorded as skipped_paused until they are resumed", true)
}

func (a *app) cronResumeCommand() *cobra.Command {
	return a.holdCommand("resume", "Resume paused crons from now on", false)
}

// holdCommand returns a command that pauses or resumes crons. To repeat it is not an error.
func (a *app) holdCommand(name, short string, paused bool) *cobra.Command {
	var flags pauseFlags
	cmd := &cobra.Command{
		Use: name + " NAME...", Short: short, Args: cobra.ArbitraryArgs,
		Long:    short + ".\n\nA change of several crons prints its id, with which forge cron undo undoes it.",
		Example: fmt.Sprintf("  forge cron %[1]s nightly-report\n  forge cron %[1]s --filter 'cron:billing-*' --reason 'we move the database' --dry-run", name),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := flags.check(names); err != nil {
				return usageError(err)
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				if flags.many(names) {
					return a.holdMany(ctx, pool, names, paused, &flags)
				}
				return a.hold(ctx, pool, names[0], paused, flags.reason)
			})
		},
	}
	flags.where.addTo(cmd.Flags(), cronstore.FilterTable.Keys(), "crons", "cron:nightly* job:report", "crons.md")
	cmd.Flags().StringVar(&flags.reason, "reason", "", "why, for those who look at the crons")
	cmd.Flags().BoolVar(&flags.all, "all", false, "all crons")
	cmd.Flags().BoolVar(&flags.dryRun, "dry-run", false, "with a filter: only print how many crons it would change")
	cmd.Flags().BoolVar(&flags.yes, "yes", false, "with a filter: do not ask")
	return cmd
}

// hold pauses or resumes one cron.
func (a *app) hold(ctx context.Context, pool *pgxpool.Pool, name string, paused bool, reason string) error {
	store := cronstore.New(pool)
	change, say := store.Resume, sayResumed
	if paused {
		change, say = store.Pause, sayPaused
	}
	cron, changed, err := change(ctx, name, cronstore.PauseOrder{By: whoAmI(), Reason: reason})
	if err != nil {
		return explainCron(ctx, pool, name, err)
	}
	now, err := store.Now(ctx)
	if err != nil {
		return err
	}
	answer := pausedCron{cron, changed, now}
	return a.result(answer, "%s", say(answer))
}

func sayPaused(c pausedCron) string {
	switch {
	case c.Changed:
		return fmt.Sprintf("%s is paused; resume it with forge cron resume %[1]s", c.Name)
	case c.PausedAt.IsZero():
		return c.Name + " is already paused by the configuration"
	default:
		return c.Name + " is already paused, since " + stamp(c.PausedAt) + c.PauseChange.String()
	}
}

func sayResumed(c pausedCron) string {
	said := c.Name + " is not paused"
	if c.Changed {
		said = c.Name + " is resumed"
	}
	// NextTick may be a tick of the pause that is not recorded yet.
	coming, err := explain.Next(c.Name, c.Spec, c.now, 1)
	if err != nil || len(coming) == 0 {
		return said + "; no tick is due any more"
	}
	return said + "; next tick " + stamp(coming[0].UTC)
}

// holdMany pauses or resumes the crons with these names, or all that match the filter.
func (a *app) holdMany(ctx context.Context, pool *pgxpool.Pool, names []string, paused bool, flags *pauseFlags) error {
	store := cronstore.New(pool)
	now, err := store.Now(ctx)
	if err != nil {
		return err
	}
	crons, err := store.Outline(ctx, nil)
	if err != nil {
		return err
	}
	var matching, missing []string
	for _, c := range cronstore.FilterTable.Select(flags.where.Filter, now, crons) {
		if c.Paused != paused && (len(names) == 0 || slices.Contains(names, c.Name)) {
			matching = append(matching, c.Name)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(crons, func(c cronstore.Outlined) bool { return c.Name == name }) {
			missing = append(missing, name)
		}
	}
	if err := a.holdCounted(ctx, store, matching, paused, now, flags, len(names) > 0); err != nil {
		return err
	}
	if len(missing) > 0 {
		return notFound("no crons: %v; see forge cron list", missing)
	}
	return nil
}

// holdCounted pauses or resumes crons after confirmation unless sure, with a progress bar, and
// prints the result.
func (a *app) holdCounted(ctx context.Context, store *cronstore.Store, crons []string, paused bool, asOf time.Time, flags *pauseFlags, sure bool) error {
	verb := map[bool]string{true: "pause", false: "resume"}[paused]
	answer := pausedCrons{Crons: len(crons), DryRun: flags.dryRun}
	if flags.dryRun {
		return a.result(answer, "would %s %s", verb, countCrons(len(crons)))
	}
	if len(crons) > 0 {
		if !sure && !flags.yes {
			if err := a.confirm(fmt.Sprintf("%s %s?", verb, countCrons(len(crons))), "use --yes, or --dry-run to see how many"); err != nil {
				return err
			}
		}
		progress, read := newBar(a.err, len(crons)), 0
		var err error
		answer.PausedMany, err = store.PauseMany(ctx, crons, paused, cronstore.PauseOrder{
			By: whoAmI(), Reason: flags.reason, AsOf: asOf,
			Progress: func(done int) { read += done; progress.set(read) },
		})
		progress.end()
		if err != nil {
			return fmt.Errorf("%w (after %s; repeat the command to continue)", err, countCrons(answer.Changed))
		}
	}
	return a.result(answer, "%s", sayHeld(answer.PausedMany, paused))
}

func sayHeld(done cronstore.PausedMany, paused bool) string {
	did := map[bool]string{true: "paused", false: "resumed"}[paused]
	if done.Changed == 0 {
		return did + " no cron"
	}
	return fmt.Sprintf("%s %s; undo it with forge cron undo %s", did, countCrons(done.Changed), done.Operation)
}

func countCrons(n int) string {
	if n == 1 {
		return "1 cron"
	}
	return fmt.Sprintf("%d crons", n)
}

// undoneCrons is the JSON output of forge cron undo.
type undoneCrons struct {
	cronstore.PausedMany
	// Paused is whether it paused crons that had been resumed.
	Paused bool `json:"paused"`
}

func (a *app) cronUndoCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "undo OPERATION", Short: "Undo pausing or resuming many crons", Args: cobra.ExactArgs(1),
		Long: "Resumes the crons that an operation paused, or pauses those that it resumed. It leaves crons alone that\n" +
			"somebody has paused or resumed since. If there are no others, the exit code is 6.",
		Example: "  forge cron undo ZQ4DJ5MOX6HTUV3KBRNA2WSE7C",
		RunE: a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, args []string) error {
			done, paused, err := cronstore.New(pool).UndoPauses(ctx, args[0], cronstore.PauseOrder{By: whoAmI(), Reason: reason})
			if errors.Is(err, cronstore.ErrNotFound) {
				return conflictError(fmt.Errorf("nothing is left to undo: each cron of the operation was paused or resumed since, or there is no operation %s", args[0]))
			}
			if err != nil {
				return err
			}
			return a.result(undoneCrons{done, paused}, "%s", sayHeld(done, paused))
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who look at the crons")
	return cmd
}
