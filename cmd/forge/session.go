package main

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/access"
)

func (a *app) sessionCommand() *cobra.Command {
	return group("session", "List and end the sessions of users who logged in with a provider", a.watchable(a.sessionListCommand()), a.sessionEndCommand())
}

func (a *app) sessionListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the open sessions of users, the newest first, at most 500", Args: cobra.NoArgs,
		Example: "  forge session list",
		RunE: listed(a, sessionColumns, func(ctx context.Context, pool *pgxpool.Pool, _ []string) ([]access.OpenSession, error) {
			return access.NewUserSessions(pool).List(ctx, "", "")
		}),
	}
}

var sessionColumns = []column[access.OpenSession]{
	{title: "id", show: func(s access.OpenSession) string { return s.ID }},
	{title: "user", show: func(s access.OpenSession) string { return s.User }},
	{title: "groups", show: func(s access.OpenSession) string { return dash(strings.Join(s.Groups, ", ")) }},
	{title: "since", show: func(s access.OpenSession) string { return ago(s.CreatedAt, s.Now) }},
	{title: "expires", show: func(s access.OpenSession) string { return stamp(s.ExpiresAt) }},
	{title: "subject", wide: true, show: func(s access.OpenSession) string { return s.Subject }},
	{title: "issuer", wide: true, show: func(s access.OpenSession) string { return s.Issuer }},
}

// endedSessions is the JSON output of forge session end.
type endedSessions struct {
	Ended []access.OpenSession `json:"ended"`
}

func (a *app) sessionEndCommand() *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use: "end [ID]", Short: "End a session, or all sessions of a user", Args: cobra.MaximumNArgs(1),
		Long:    "Ends a session, or with --user all sessions of a user, by name or by the provider's identifier.\nThe user can log in again unless the provider refuses.",
		Example: "  forge session end 5f1c0a9b3d2e4f60\n  forge session end --user ann@example.com",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (user == "") == (len(args) == 0) {
				return usageError(errors.New("want the id of a session, or --user"))
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return a.endSessions(ctx, access.NewUserSessions(pool), user, args)
			})
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "end all sessions of this user")
	return cmd
}

func (a *app) endSessions(ctx context.Context, sessions *access.UserSessions, user string, args []string) error {
	if user == "" {
		ended, err := sessions.End(ctx, args[0], "", "")
		if errors.Is(err, access.ErrNotFound) {
			return notFound("no session %q; see forge session list", args[0])
		}
		if err != nil {
			return err
		}
		return a.result(endedSessions{[]access.OpenSession{ended}}, "the session of %s has ended", ended.User)
	}
	ended, err := sessions.EndUser(ctx, user)
	if err != nil {
		return err
	}
	if len(ended) == 0 {
		return notFound("no session of a user %q; see forge session list", user)
	}
	return a.result(endedSessions{ended}, "%d sessions of %s have ended", len(ended), user)
}
