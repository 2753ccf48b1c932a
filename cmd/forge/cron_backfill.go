package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/scheduler/crons"
)

// backfilled is the JSON output of forge cron backfill.
type backfilled struct {
	cronstore.Backfill
	DryRun bool `json:"dry_run"`
	// Ran is the number of ticks that got a job.
	Ran int `json:"ran"`
}

func (a *app) cronBackfillCommand() *cobra.Command {
	var from, to string
	span := cronstore.Span{}
	dryRun := false
	cmd := &cobra.Command{
		Use: "backfill NAME", Short: "Run past ticks that have no job", Args: cobra.ExactArgs(1),
		Long: "Runs the ticks from --from until just before --to that have no job: skipped ticks, and those\n" +
			"from before the cron was first seen. It runs the oldest first, at most --limit. Ticks that\n" +
			"ran or are excluded are left alone, so repeating an interrupted command continues it.",
		Example: "  forge cron backfill nightly-report --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			span.Cron = args[0]
			if err := fillSpan(&span, from, to); err != nil {
				return err
			}
			return a.withManual(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool, manual crons.Manual) error {
				return a.backfill(ctx, pool, manual, span, dryRun)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "the start, RFC 3339")
	flags.StringVar(&to, "to", "", "the end, not included, RFC 3339")
	flags.IntVar(&span.Limit, "limit", 1000, "run at most this many ticks")
	flags.BoolVar(&dryRun, "dry-run", false, "only print the ticks that would run")
	return cmd
}

func fillSpan(span *cronstore.Span, from, to string) (err error) {
	if from == "" || to == "" {
		return usageError(errors.New("a backfill needs --from and --to"))
	}
	if span.From, err = parseInstant("--from", from); err != nil {
		return err
	}
	if span.To, err = parseInstant("--to", to); err != nil {
		return err
	}
	if !span.To.After(span.From) {
		return usageError(fmt.Errorf("--to %s: want an instant after --from %s", to, from))
	}
	if span.Limit < 1 || span.Limit > 1_000_000 {
		return usageError(fmt.Errorf("--limit %d: want 1 to 1000000", span.Limit))
	}
	return nil
}

func (a *app) backfill(ctx context.Context, pool *pgxpool.Pool, manual crons.Manual, span cronstore.Span, dryRun bool) error {
	found, err := cronstore.New(pool).BackfillTicks(ctx, span)
	if err != nil {
		return explainCron(ctx, pool, span.Cron, err)
	}
	answer := backfilled{Backfill: found, DryRun: dryRun}
	if !dryRun {
		bar := newBar(a.err, len(found.Ticks))
		answer.Ran, err = manual.Backfill(ctx, found, whoAmI(), bar.set)
		bar.end()
		if err != nil {
			return explainCron(ctx, pool, span.Cron, err)
		}
	}
	if a.tabular() && dryRun && len(found.Ticks) > 0 {
		if err := list(a, found.Ticks, []column[time.Time]{{title: "tick", show: explain.Instant}}); err != nil {
			return err
		}
	}
	return a.result(answer, "%s", answer)
}

// String describes the result in one sentence.
func (b backfilled) String() string {
	what, n := "backfilled", b.Ran
	if b.DryRun {
		what, n = "would backfill", len(b.Ticks)
	}
	said := fmt.Sprintf("%s %d ticks of %s", what, n, b.Cron)
	if b.Left > 0 {
		said += fmt.Sprintf("; %d have their job or are excluded", b.Left)
	}
	if b.More {
		said += "; more are due: repeat the command, or raise --limit"
	}
	return said
}

// bar is a progress bar. It prints nothing unless the output is a terminal.
type bar struct {
	out   io.Writer // nil: print nothing
	total int
}

const barWidth = 40

func newBar(out io.Writer, total int) bar {
	file, ok := out.(*os.File)
	if !ok || total == 0 || !term.IsTerminal(int(file.Fd())) {
		return bar{}
	}
	b := bar{out, total}
	b.set(0)
	return b
}

func (b bar) set(done int) {
	if b.out == nil {
		return
	}
	full := barWidth * done / b.total
	_, _ = fmt.Fprintf(b.out, "\r[%s%s] %d of %d", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), done, b.total)
}

func (b bar) end() {
	if b.out != nil {
		_, _ = fmt.Fprintln(b.out)
	}
}
