package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/alerting"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/netguard"
)

func (a *app) alertsCommand() *cobra.Command {
	return group("alerts", "Show, check, export and silence alerts, and test their receivers",
		a.watchable(a.alertsListCommand()), a.watchable(a.alertsHistoryCommand()), a.alertsCheckCommand(), a.alertsExportCommand(), a.alertsTestCommand(),
		a.alertsSilenceCommand(), a.alertsUnsilenceCommand())
}

func (a *app) alertsListCommand() *cobra.Command {
	var where whereFlag
	var sort sortFlag
	cmd := &cobra.Command{
		Use: "list", Short: "List the alerts in force with their occurrences, firing ones first", Args: cobra.NoArgs,
		Example: "  forge alerts list\n  forge alerts list --filter 'state:firing severity:critical'",
		RunE: listed(a, alertColumns, func(ctx context.Context, pool *pgxpool.Pool, _ []string) ([]alerts.Status, error) {
			return selected(ctx, &where, &sort, alerts.FilterTable, alerts.Orders, alerts.New(pool).List)
		}),
	}
	where.addTo(cmd.Flags(), alerts.FilterTable.Keys(), "alerts", "state:firing severity:critical", "alerts.md")
	sort.addTo(cmd.Flags(), alerts.Orders.Names())
	return cmd
}

var alertColumns = []column[alerts.Status]{
	{title: "alert", show: func(s alerts.Status) string { return s.Name }},
	{title: "state", show: func(s alerts.Status) string { return string(s.State) }},
	{title: "severity", show: func(s alerts.Status) string { return s.Severity }},
	{title: "occurrences", show: func(s alerts.Status) string { return strconv.Itoa(len(s.Occurrences)) }},
	{title: "since", show: func(s alerts.Status) string {
		since := time.Time{}
		for _, occurrence := range s.Occurrences {
			if since.IsZero() || occurrence.ActiveAt.Before(since) {
				since = occurrence.ActiveAt
			}
		}
		return stamp(since)
	}},
	{title: "receivers", show: func(s alerts.Status) string { return strings.Join(s.Notify, ", ") }},
	{title: "silenced until", show: func(s alerts.Status) string {
		if s.Silence == nil {
			return "-"
		}
		return stamp(s.Silence.Until)
	}},
	{title: "silenced by", wide: true, show: func(s alerts.Status) string {
		if s.Silence == nil {
			return "-"
		}
		return strings.TrimSuffix(s.Silence.CreatedBy+": "+s.Silence.Reason, ": ")
	}},
	{title: "for", wide: true, show: func(s alerts.Status) string { return s.For.String() }},
	{title: "keep firing for", wide: true, show: func(s alerts.Status) string { return s.KeepFiringFor.String() }},
	{title: "condition", wide: true, show: func(s alerts.Status) string { return s.Condition }},
}

func (a *app) alertsHistoryCommand() *cobra.Command {
	limit := 50
	cmd := &cobra.Command{
		Use: "history [NAME]", Short: "List resolved occurrences, newest first", Args: cobra.MaximumNArgs(1),
		Example: "  forge alerts history NoLeader --limit 5",
		RunE: listed(a, occurrenceColumns, func(ctx context.Context, pool *pgxpool.Pool, args []string) ([]alerts.Occurrence, error) {
			return alerts.New(pool).History(ctx, patterns(args), 0, limit)
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "at most this many")
	return cmd
}

var occurrenceColumns = []column[alerts.Occurrence]{
	{title: "alert", show: func(i alerts.Occurrence) string { return i.Alert }},
	{title: "began", show: func(i alerts.Occurrence) string { return stamp(i.ActiveAt) }},
	{title: "fired", show: func(i alerts.Occurrence) string { return stamp(i.FiredAt) }},
	{title: "ended", show: func(i alerts.Occurrence) string { return stamp(i.ResolvedAt) }},
	{title: "summary", show: func(i alerts.Occurrence) string { return i.Annotations["summary"] }},
	{title: "receivers", wide: true, show: func(i alerts.Occurrence) string { return strings.Join(i.Notify, ", ") }},
}

func (a *app) alertsCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Check the alerts of forge.toml: expressions, metrics, receivers, templates", Args: cobra.NoArgs,
		Example: "  forge alerts check --config forge.toml",
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.quiet().load() // its errors name the place in the file
			if err != nil {
				return err
			}
			return a.reportAlerts(len(cfg.Alerts), alerts.CheckFile(cfg, alerting.New().Judge))
		},
	}
}

func (a *app) reportAlerts(checked int, problems []alerts.Problem) error {
	if !a.tabular() {
		return a.document(problems)
	}
	for _, problem := range problems {
		_, _ = fmt.Fprintln(a.out, problem)
	}
	if len(problems) == 0 {
		_, _ = fmt.Fprintf(a.out, "%d alerts checked, no problems found\n", checked)
	}
	return nil
}

func (a *app) alertsExportCommand() *cobra.Command {
	format := "prometheus"
	cmd := &cobra.Command{
		Use: "export", Short: "Print the alerts of forge.toml as rules for Prometheus", Args: cobra.NoArgs,
		Example: "  forge alerts export > rules/forge.yml",
		RunE: func(*cobra.Command, []string) error {
			if format != "prometheus" {
				return usageError(fmt.Errorf("--format %s: want prometheus", format))
			}
			cfg, err := a.quiet().load()
			if err != nil {
				return err
			}
			rules, err := alerting.New().Export(cfg.Alerts)
			if err != nil {
				return err
			}
			_, err = a.out.Write(rules)
			return err
		},
	}
	cmd.Flags().StringVar(&format, "format", format, "format of the rules: prometheus")
	return cmd
}

func (a *app) alertsTestCommand() *cobra.Command {
	return &cobra.Command{
		Use: "test NAME", Short: "Send a firing and a resolved test message to the receivers of an alert of forge.toml", Args: cobra.ExactArgs(1),
		Example: "  forge alerts test NoLeader",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.quiet().load()
			if err != nil {
				return err
			}
			rules := cfg.Alerts
			for _, rule := range rules {
				if rule.Name == args[0] {
					return a.tryAlert(cmd.Context(), cfg, rule)
				}
			}
			return unknown("alert", args[0], names(rules, func(r alerts.Rule) string { return r.Name }), "[[alerts]] of the file")
		},
	}
}

// tryAlert sends a firing and a resolved test message to each target, even if an earlier target
// has failed.
func (a *app) tryAlert(ctx context.Context, cfg *config.Config, rule alerts.Rule) error {
	if len(rule.Notify) == 0 {
		return fmt.Errorf("alert %s has no receivers; give it notify = [...]", rule.Name)
	}
	receivers, err := alerting.New().NewReceivers(cfg.Notify, netguard.Receivers(cfg.HTTP.AllowedReceivers()), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	failed := 0
	for _, target := range rule.Notify {
		result := "sent"
		if err := tryTarget(ctx, receivers, rule, target); err != nil {
			failed++
			result = err.Error()
		}
		_, _ = fmt.Fprintf(a.out, "%s: %s\n", target, result)
	}
	if failed > 0 {
		return fmt.Errorf("sending to %d of %d receivers failed", failed, len(rule.Notify))
	}
	return nil
}

func tryTarget(ctx context.Context, receivers alerts.Sender, rule alerts.Rule, target string) error {
	now := time.Now()
	occurrence := alerts.TestOccurrence(rule, now, "forge alerts test")
	send := func() error {
		return receivers.Send(ctx, target, alerts.AlertMessage(alerts.TestPrefix+rule.Name, now, []alerts.OccurrenceFacts{occurrence}))
	}
	if err := send(); err != nil {
		return err
	}
	occurrence.EndsAt = now
	if err := send(); !errors.Is(err, alerts.ErrUnwanted) {
		return err
	}
	return nil
}

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
				return a.result(made, "%s is silenced until %s; end it with forge alerts unsilence %[1]s", made.Alert, stamp(made.Until))
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
	text := cmp.Or(f.lasts, defaultSilence)
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
		RunE: a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, args []string) error {
			changed, err := alerts.New(pool).Unsilence(ctx, args[0], whoAmI())
			if err != nil {
				return explainAlert(ctx, pool, args[0], err)
			}
			said := "is not silenced"
			if changed {
				said = "is no longer silenced"
			}
			return a.result(unsilenced{args[0], changed}, "%s %s", args[0], said)
		}),
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
