package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"

	client "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/forge-scheduler/forge/internal/access"
)

const (
	// skew is how far the provider's clock may be from the node's.
	skew = time.Minute
	// maxIDToken is the maximum length of an ID token.
	maxIDToken = 64 << 10
)

// Begin returns the address at which a user logs in.
func (p *provider) Begin(ctx context.Context, attempt access.LoginAttempt) (string, error) {
	known, err := p.discover(ctx, freshFor)
	if err != nil {
		return "", err
	}
	return known.AuthCodeURL(attempt.State, client.Nonce(attempt.Nonce), oauth2.S256ChallengeOption(attempt.Verifier)), nil
}

// Complete exchanges the code of a login for what the provider says about the user. The
// error wraps access.ErrInvalid if the provider refuses the code or its ID token is invalid.
func (p *provider) Complete(ctx context.Context, attempt access.LoginAttempt, code string) (access.Login, error) {
	known, err := p.discover(ctx, freshFor)
	if err != nil {
		return access.Login{}, err
	}
	tokens, err := known.Exchange(client.ClientContext(ctx, p.client), code, oauth2.VerifierOption(attempt.Verifier))
	if err != nil {
		return access.Login{}, p.explain("exchange the code of a login", err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	id, err := p.verify(ctx, known, raw)
	if err != nil {
		return access.Login{}, err
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(attempt.Nonce)) != 1 {
		return access.Login{}, invalid(errors.New("it has the nonce of another login"))
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(tokens.AccessToken); err != nil {
			return access.Login{}, invalid(err)
		}
	}
	return p.login(id, raw, tokens)
}

// Refresh returns what the provider says about a user now. The error wraps access.ErrInvalid
// if the provider has ended the login.
func (p *provider) Refresh(ctx context.Context, of access.Login) (access.Login, error) {
	known, err := p.discover(ctx, freshFor)
	if err != nil {
		return access.Login{}, err
	}
	source := known.TokenSource(client.ClientContext(ctx, p.client), &oauth2.Token{RefreshToken: of.RefreshToken})
	tokens, err := source.Token()
	if err != nil {
		return access.Login{}, p.explain("refresh a login", err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	if raw == "" { // the provider only extends the login
		of.RefreshToken, of.Valid = tokens.RefreshToken, time.Until(tokens.Expiry)
		return of, nil
	}
	id, err := p.verify(ctx, known, raw)
	if err != nil {
		return access.Login{}, err
	}
	if id.Subject != of.Subject {
		return access.Login{}, invalid(errors.New("it names another user than before"))
	}
	now, err := p.login(id, raw, tokens)
	if now.ProviderSession == "" {
		now.ProviderSession = of.ProviderSession
	}
	return now, err
}

// EndedSession returns whose sessions a logout token ends: those of a subject, of a session
// at the provider, or of both.
func (p *provider) EndedSession(ctx context.Context, token string) (subject, session string, err error) {
	known, err := p.discover(ctx, freshFor)
	if err != nil {
		return "", "", err
	}
	if len(token) > maxIDToken {
		return "", "", fmt.Errorf("the logout token is too long: %w", access.ErrInvalid)
	}
	verified, err := p.verifier(known).VerifyLogout(client.ClientContext(ctx, p.client), token)
	if err != nil {
		return "", "", fmt.Errorf("%w: the logout token: %w", access.ErrInvalid, clipped{err})
	}
	return verified.Subject, verified.SessionID, nil
}

// verifier accepts tokens for this client, and those that have expired within the skew.
func (p *provider) verifier(known *discovered) *client.IDTokenVerifier {
	return known.Verifier(&client.Config{ClientID: p.cfg.ClientID, Now: func() time.Time { return p.now().Add(-skew) }})
}

// verify returns the claims of an ID token if it is valid.
func (p *provider) verify(ctx context.Context, known *discovered, raw string) (*client.IDToken, error) {
	switch {
	case raw == "":
		return nil, invalid(errors.New("the provider has sent none; are the scopes without openid?"))
	case len(raw) > maxIDToken:
		return nil, invalid(fmt.Errorf("it has %d bytes, more than %d; let the provider send fewer groups", len(raw), maxIDToken))
	}
	id, err := p.verifier(known).Verify(client.ClientContext(ctx, p.client), raw)
	if err != nil {
		return nil, invalid(err)
	}
	var also struct {
		AuthorizedParty string `json:"azp"`
	}
	if err := id.Claims(&also); err != nil {
		return nil, invalid(err)
	}
	switch {
	case also.AuthorizedParty != "" && also.AuthorizedParty != p.cfg.ClientID:
		return nil, invalid(errors.New("it is for another client"))
	case id.IssuedAt.After(p.now().Add(skew)):
		return nil, invalid(errors.New("it is from the future; do the clocks agree?"))
	}
	return id, nil
}

// invalid returns the error of an ID token that cannot be accepted.
func invalid(why error) error {
	return fmt.Errorf("%w: the ID token: %w", access.ErrInvalid, clipped{why})
}

// login returns what an ID token says about the user.
func (p *provider) login(id *client.IDToken, raw string, tokens *oauth2.Token) (access.Login, error) {
	var all map[string]any
	if err := id.Claims(&all); err != nil {
		return access.Login{}, invalid(err)
	}
	user := access.User{Issuer: p.cfg.Issuer, Subject: id.Subject, Name: nameOf(all), Groups: groupsOf(all, p.cfg.GroupsClaim)}
	if err := user.Check(); err != nil {
		return access.Login{}, invalid(err)
	}
	session, _ := all["sid"].(string)
	return access.Login{
		User: user, ProviderSession: session, Valid: p.lifeOf(id), RefreshToken: tokens.RefreshToken, IDToken: raw,
	}, nil
}

// lifeOf returns how long an ID token is valid from now on. If the clocks may differ, the
// provider's own counts.
func (p *provider) lifeOf(id *client.IDToken) time.Duration {
	now := p.now()
	if id.IssuedAt.After(now.Add(-skew)) {
		now = id.IssuedAt
	}
	return id.Expiry.Sub(now)
}

// nameOf returns what people call the user.
func nameOf(claims map[string]any) string {
	email, _ := claims["email"].(string)
	if verified, said := claims["email_verified"].(bool); said && !verified {
		email = ""
	}
	for _, name := range []any{email, claims["preferred_username"], claims["name"]} {
		if text, _ := name.(string); text != "" {
			return text
		}
	}
	return ""
}

// groupsOf returns the groups of a claim: a list of texts, or one text. The dots of the
// claim's name lead into objects.
func groupsOf(claims map[string]any, name string) (groups []string) {
	value, found := claims[name]
	for !found {
		first, rest, nested := strings.Cut(name, ".")
		inner, _ := claims[first].(map[string]any)
		if !nested || inner == nil {
			return nil
		}
		claims, name = inner, rest
		value, found = claims[name]
	}
	switch value := value.(type) {
	case string:
		return []string{value}
	case []any:
		for _, item := range value {
			if group, ok := item.(string); ok {
				groups = append(groups, group)
			}
		}
	}
	return groups
}
