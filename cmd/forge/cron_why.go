package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/explain"
)

func (a *app) cronWhyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "why NAME TICK", Short: "Explain in one sentence the verdict of a tick",
		Example: "  forge cron why nightly-report 2026-11-20T01:30:00Z",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			tick, err := parseInstant("TICK", args[1])
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				answer, err := explain.New(pool).Why(ctx, args[0], tick)
				if err != nil {
					return explainCron(ctx, pool, args[0], err)
				}
				return a.answer(answer)
			})
		},
	}
}

// parseInstant parses an argument or flag, named by what, as RFC 3339.
func parseInstant(what, text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, usageError(fmt.Errorf("%s %q: want RFC 3339, such as 2026-03-28T00:00:00Z", what, text))
	}
	return at, nil
}

// answer prints an explanation. A tick without a row in the ledger is a not-found error that has the
// explanation as its text.
func (a *app) answer(e explain.Explanation) error {
	if !a.tabular() {
		if err := a.document(e); err != nil {
			return err
		}
	} else if e.Standing == explain.Recorded {
		_, err := fmt.Fprintln(a.out, e.Sentence)
		return err
	}
	if e.Standing == explain.Recorded {
		return nil
	}
	return notFound("%s", e.Sentence)
}
