package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
)

// defaultSilence is how long a silence lasts without --for and --until.
const defaultSilence = "2h"

// silenceFlags are the flags of forge alerts silence.
type silenceFlags struct{ lasts, until, reason string }

func (a *app) alertsSilenceCommand() *cobra.Command {
	var flags silenceFlags
	cmd := &cobra.Command{
		Use: "silence NAME", Short: "Send no notifications of an alert until a time", Args: cobra.ExactArgs(1),
		Example: "  forge alerts silence NoLeader --for 30m --reason \"upgrade of PostgreSQL\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			span, err := flags.span()
			if err != nil {
				return err
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				made, err := alerts.New(pool).Silence(ctx, alerts.Silence{Alert: args[0], CreatedBy: whoAmI(), Reason: flags.reason}, span)
				if err != nil {
					return explainAlert(ctx, pool, args[0], err)
				}
				if !a.tabular() {
					return a.document(made)
				}
				_, err = fmt.Fprintf(a.out, "%s is silenced until %s; end it with forge alerts unsilence %s\n", made.Alert, stamp(made.Until), made.Alert)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&flags.lasts, "for", "", "for how long, such as 90m, 2h or 3d (default "+defaultSilence+")")
	cmd.Flags().StringVar(&flags.until, "until", "", "until when, RFC 3339, instead of --for")
	cmd.Flags().StringVar(&flags.reason, "reason", "", "why, shown with the silence")
	return cmd
}

func (f silenceFlags) span() (alerts.Span, error) {
	switch {
	case f.until != "" && f.lasts != "":
		return alerts.Span{}, usageError(errors.New("--for and --until: want one of them"))
	case f.until != "":
		until, err := parseInstant("--until", f.until)
		return alerts.Span{Until: until}, err
	}
	text := f.lasts
	if text == "" {
		text = defaultSilence
	}
	lasts, err := config.ParseDuration(text)
	if err != nil {
		return alerts.Span{}, usageError(fmt.Errorf("--for %q: %w; want a time such as 90m, 2h or 3d", text, err))
	}
	return alerts.Span{For: lasts.Std()}, nil
}

// unsilenced is the JSON output of forge alerts unsilence.
type unsilenced struct {
	Alert   string `json:"alert"`
	Changed bool   `json:"changed"`
}

func (a *app) alertsUnsilenceCommand() *cobra.Command {
	return &cobra.Command{
		Use: "unsilence NAME", Short: "End the silence of an alert", Args: cobra.ExactArgs(1),
		Example: "  forge alerts unsilence NoLeader",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				changed, err := alerts.New(pool).Unsilence(ctx, args[0], whoAmI())
				if err != nil {
					return explainAlert(ctx, pool, args[0], err)
				}
				if !a.tabular() {
					return a.document(unsilenced{args[0], changed})
				}
				said := " is not silenced"
				if changed {
					said = " is no longer silenced"
				}
				_, err = fmt.Fprintln(a.out, args[0]+said)
				return err
			})
		},
	}
}

func explainAlert(ctx context.Context, pool *pgxpool.Pool, name string, err error) error {
	switch {
	case errors.Is(err, alerts.ErrNotFound):
		inForce, err := alerts.New(pool).List(ctx)
		if err != nil {
			return err
		}
		return unknown("alert", name, names(inForce, func(s alerts.Status) string { return s.Name }), "forge alerts list")
	case errors.Is(err, alerts.ErrInvalid):
		return usageError(err)
	default:
		return err
	}
}
