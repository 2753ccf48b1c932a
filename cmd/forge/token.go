package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/access"
)

func (a *app) tokenCommand() *cobra.Command {
	return group("token", "Manage the tokens of the dashboard and the API", a.tokenCreateCommand(), a.watchable(a.tokenListCommand()), a.tokenRevokeCommand())
}

func (a *app) tokenCreateCommand() *cobra.Command {
	var scope, expires string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a token and print it once",
		Long: "Create a token, for programs as a bearer token and for people in the login form.\n" +
			"It is printed once, on standard output; the database keeps only its hash.\n\n" +
			"viewer    sees everything but the audit log\n" +
			"operator  also acts on crons, jobs, queues and dead letters\n" +
			"admin     also acts on leaders, nodes and tokens, and reads the audit log",
		Args:    cobra.ExactArgs(1),
		Example: "  forge token create deploy --scope operator --expires 30d",
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := newToken(args[0], scope, expires)
			if err != nil {
				return usageError(err)
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return a.createToken(ctx, pool, wanted)
			})
		},
	}
	cmd.Flags().StringVar(&scope, "scope", string(access.Viewer), "what it may do: viewer, operator or admin")
	cmd.Flags().StringVar(&expires, "expires", access.DefaultLife, "how long it is valid, such as 12h or 90d, or never")
	return cmd
}

func newToken(name, scope, expires string) (access.NewToken, error) {
	if err := access.CheckName(name); err != nil {
		return access.NewToken{}, err
	}
	parsed, err := access.ParseScope(scope)
	if err != nil {
		return access.NewToken{}, fmt.Errorf("--scope: %w", err)
	}
	life, err := access.ParseLife(expires)
	if err != nil {
		return access.NewToken{}, fmt.Errorf("--expires %q: %w", expires, err)
	}
	return access.NewToken{Name: name, Scope: parsed, Life: life, By: whoAmI()}, nil
}

// madeToken is the JSON output of forge token create: the token with its secret.
type madeToken struct {
	access.Token
	Secret string `json:"token"`
}

func (a *app) createToken(ctx context.Context, pool *pgxpool.Pool, wanted access.NewToken) error {
	secret, token, err := access.NewTokens(pool).Create(ctx, wanted)
	if errors.Is(err, access.ErrTaken) {
		return conflictError(fmt.Errorf("a token %q exists; choose another name, or revoke it first", wanted.Name))
	}
	if err != nil {
		return err
	}
	if a.tabular() {
		a.note(fmt.Sprintf("The token %s (%s, expires %s). It is not shown again:", token.Name, token.Scope, ends(token)))
	}
	return a.result(madeToken{token, secret}, "%s", secret)
}

func (a *app) tokenListCommand() *cobra.Command {
	var where whereFlag
	var sort sortFlag
	cmd := &cobra.Command{
		Use: "list", Short: "List the tokens, without their secrets", Args: cobra.NoArgs,
		Example: "  forge token list\n  forge token list --filter 'state:active expires:<7d'",
		RunE: listed(a, tokenColumns, func(ctx context.Context, pool *pgxpool.Pool, _ []string) ([]access.Token, error) {
			return selected(ctx, &where, &sort, access.FilterTable, access.Orders, access.NewTokens(pool).List)
		}),
	}
	where.addTo(cmd.Flags(), access.FilterTable.Keys(), "tokens", "state:active expires:<7d", "security.md")
	sort.addTo(cmd.Flags(), access.Orders.Names())
	return cmd
}

var tokenColumns = []column[access.Token]{
	{title: "name", show: func(t access.Token) string { return t.Name }},
	{title: "scope", show: func(t access.Token) string { return string(t.Scope) }},
	{title: "state", show: func(t access.Token) string { return t.State }},
	{title: "expires", show: ends},
	{title: "last used", show: func(t access.Token) string { return ago(t.LastUsedAt, t.Now) }},
	{title: "created by", show: func(t access.Token) string { return t.CreatedBy }},
	{title: "created", wide: true, show: func(t access.Token) string { return stamp(t.CreatedAt) }},
	{title: "revoked", wide: true, show: func(t access.Token) string { return stamp(t.RevokedAt) }},
	{title: "revoked by", wide: true, show: func(t access.Token) string { return dash(t.RevokedBy) }},
}

// ends shows when a token expires.
func ends(t access.Token) string {
	if t.ExpiresAt.IsZero() {
		return access.Never
	}
	return ago(t.ExpiresAt, t.Now)
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME", Short: "Revoke a token and end its sessions", Args: cobra.ExactArgs(1),
		Example: "  forge token revoke deploy",
		RunE: a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, args []string) error {
			token, err := access.NewTokens(pool).Revoke(ctx, args[0], whoAmI())
			if errors.Is(err, access.ErrNotFound) {
				return unknownToken(ctx, pool, args[0])
			}
			if err != nil {
				return err
			}
			return a.result(token, "%s is revoked", token.Name)
		}),
	}
}

func unknownToken(ctx context.Context, pool *pgxpool.Pool, name string) error {
	tokens, err := access.NewTokens(pool).List(ctx)
	if err != nil {
		return err
	}
	valid := slices.DeleteFunc(tokens, func(t access.Token) bool { return !t.RevokedAt.IsZero() })
	return unknown("valid token", name, names(valid, func(t access.Token) string { return t.Name }), "forge token list")
}
