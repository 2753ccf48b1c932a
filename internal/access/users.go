package access

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// User is a user whom a provider or a trusted proxy has named.
type User struct {
	// Issuer and Subject identify the user for good. Issuer is the provider's address, or
	// ProxyIssuer.
	Issuer, Subject string
	// Name is what people call the user, such as an e-mail address.
	Name   string
	Groups []string
}

// ProxyIssuer is the issuer of users whom a trusted proxy has named.
const ProxyIssuer = "proxy"

// userActor begins the names of users in the audit log. Tokens' names have no colon.
const userActor = "user:"

// maxUserText is the maximum length in bytes of a user's name and identifier.
const maxUserText = 200

// GroupScopes maps the names of groups to scopes.
type GroupScopes map[string]Scope

// ScopeOf returns the widest scope that one of the groups gives, or "".
func (g GroupScopes) ScopeOf(groups []string) (widest Scope) {
	for _, group := range groups {
		if scope := g[group]; scope != "" && !widest.Covers(scope) {
			widest = scope
		}
	}
	return widest
}

// Known returns the groups that give a scope, sorted.
func (g GroupScopes) Known(groups []string) []string {
	known := []string{} // not null in the database
	for _, group := range groups {
		if _, ok := g[group]; ok && !slices.Contains(known, group) {
			known = append(known, group)
		}
	}
	slices.Sort(known)
	return known
}

// Holder returns the user as the caller of requests, with the scope that the groups give.
func (u User) Holder(scopes GroupScopes) Holder {
	return Holder{
		Name: userActor + clean(cmp.Or(u.Name, u.Subject)), Scope: scopes.ScopeOf(u.Groups),
		Issuer: u.Issuer, Subject: u.Subject, Groups: strings.Join(scopes.Known(u.Groups), ", "),
	}
}

// Check returns what is wrong with the user's texts.
func (u User) Check() error {
	switch {
	case u.Subject == "":
		return fmt.Errorf("the user has no identifier")
	case len(u.Subject) > maxUserText || len(u.Name) > maxUserText:
		return fmt.Errorf("the user's identifier or name is longer than %d bytes", maxUserText)
	case clean(u.Subject) != u.Subject:
		return fmt.Errorf("the user's identifier has characters that cannot be shown")
	}
	return nil
}

// Login is what a provider says about a user who has logged in.
type Login struct {
	User
	// ProviderSession is the provider's id of its own session; it may be empty.
	ProviderSession string
	// Valid is how long the provider's word holds from now on.
	Valid time.Duration
	// RefreshToken extends the login; it is empty if the provider gives none. IDToken
	// names the login when the user logs out.
	RefreshToken, IDToken string
}

// LoginAttempt is what a browser keeps of a login until the provider sends it back.
type LoginAttempt struct {
	// State comes back with the browser, Nonce in the ID token. Verifier proves that
	// whoever exchanges the code has begun the login.
	State, Nonce, Verifier string
	// Next is the page to continue at.
	Next string
}

// NewLoginAttempt returns an attempt with random texts.
func NewLoginAttempt(next string) LoginAttempt {
	return LoginAttempt{State: newSecret(""), Nonce: newSecret(""), Verifier: newSecret(""), Next: next}
}

// UserSession is the session of a user in a browser.
type UserSession struct {
	Login
	// ValidUntil is when the provider's word ends, ExpiresAt when the session does.
	ValidUntil, ExpiresAt time.Time
	// Now is the database's clock.
	Now time.Time
}

// UserSessions are the sessions of users.
type UserSessions struct{ db postgres.DB }

// NewUserSessions returns the sessions of users of a database.
func NewUserSessions(db postgres.DB) *UserSessions { return &UserSessions{db} }

const openUserSQL = `
INSERT INTO forge_user_sessions (hash, issuer, subject, name, groups, provider_session, sealed, valid_until, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp() + least($8::interval, $9), clock_timestamp() + $9::interval)`

const userSessionSQL = `
SELECT issuer, subject, name, groups, provider_session, sealed, valid_until, expires_at, clock_timestamp()
FROM forge_user_sessions
WHERE hash = $1 AND expires_at > clock_timestamp()`

// One node at a time extends a session: providers accept a refresh token once.
const claimUserSQL = `
UPDATE forge_user_sessions SET extending_until = clock_timestamp() + $3::interval
WHERE hash = $1 AND valid_until = $2 AND (extending_until IS NULL OR extending_until < clock_timestamp())`

const releaseUserSQL = `UPDATE forge_user_sessions SET extending_until = NULL WHERE hash = $1`

const extendUserSQL = `
UPDATE forge_user_sessions
SET name = $2, groups = $3, sealed = $4, valid_until = least(clock_timestamp() + $5::interval, expires_at), extending_until = NULL
WHERE hash = $1`

const closeUserSQL = `DELETE FROM forge_user_sessions WHERE hash = $1`

const closeUsersSQL = `
DELETE FROM forge_user_sessions
WHERE issuer = $1 AND ($2 = '' OR subject = $2) AND ($3 = '' OR provider_session = $3)`

const pruneUsersSQL = `
DELETE FROM forge_user_sessions
WHERE hash IN (SELECT hash FROM forge_user_sessions WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)`

// IsUserSession reports whether a secret has the form of a user's session.
func IsUserSession(secret string) bool { return strings.HasPrefix(secret, userPrefix) }

// Open opens a session for a user, with the groups that give a scope.
func (u *UserSessions) Open(ctx context.Context, of Login) (session string, err error) {
	session = newSecret(userPrefix)
	hash, _ := hashOf(userPrefix, session)
	err = postgres.Exec(ctx, u.db, "open a user's session", openUserSQL,
		hash, of.Issuer, of.Subject, of.Name, of.Groups, of.ProviderSession, seal(session, of.RefreshToken, of.IDToken), of.Valid, SessionLife)
	return session, err
}

// Session returns a session, or ErrInvalid. The provider's word may have ended.
func (u *UserSessions) Session(ctx context.Context, session string) (UserSession, error) {
	hash, ok := hashOf(userPrefix, session)
	if !ok {
		return UserSession{}, ErrInvalid
	}
	found, any, err := postgres.First(ctx, u.db, "look up a user's session", scanUserSession(session), userSessionSQL, hash)
	if err == nil && !any {
		err = ErrInvalid
	}
	return found, err
}

func scanUserSession(session string) pgx.RowToFunc[UserSession] {
	return func(row pgx.CollectableRow) (s UserSession, err error) {
		var sealed []byte
		err = row.Scan(&s.Issuer, &s.Subject, &s.Name, &s.Groups, &s.ProviderSession, &sealed, &s.ValidUntil, &s.ExpiresAt, &s.Now)
		if err != nil {
			return s, err
		}
		s.RefreshToken, s.IDToken, err = unseal(session, sealed)
		return s, err
	}
}

// Claim reports whether the caller may extend a session. For the given time nobody else may.
func (u *UserSessions) Claim(ctx context.Context, session string, known UserSession, within time.Duration) (bool, error) {
	hash, _ := hashOf(userPrefix, session)
	n, err := postgres.Affected(ctx, u.db, "claim a user's session", claimUserSQL, hash, known.ValidUntil, within)
	return n == 1, err
}

// Release gives up a claim.
func (u *UserSessions) Release(ctx context.Context, session string) error {
	hash, _ := hashOf(userPrefix, session)
	return postgres.Exec(ctx, u.db, "release a user's session", releaseUserSQL, hash)
}

// Extend records what the provider says about a session now.
func (u *UserSessions) Extend(ctx context.Context, session string, now Login) error {
	hash, _ := hashOf(userPrefix, session)
	return postgres.Exec(ctx, u.db, "extend a user's session", extendUserSQL,
		hash, now.Name, now.Groups, seal(session, now.RefreshToken, now.IDToken), now.Valid)
}

// Close ends a session; it is no error if the session has ended.
func (u *UserSessions) Close(ctx context.Context, session string) error {
	hash, ok := hashOf(userPrefix, session)
	if !ok {
		return nil
	}
	return postgres.Exec(ctx, u.db, "end a user's session", closeUserSQL, hash)
}

// CloseAll ends the sessions that a provider has ended: those of a subject, of a session at
// the provider, or of both. It returns how many there were.
func (u *UserSessions) CloseAll(ctx context.Context, issuer, subject, providerSession string) (int64, error) {
	if subject == "" && providerSession == "" {
		return 0, nil
	}
	return postgres.Affected(ctx, u.db, "end a user's sessions", closeUsersSQL, issuer, subject, providerSession)
}

// Prune deletes at most limit sessions that ended before an instant.
func (u *UserSessions) Prune(ctx context.Context, before time.Time, limit int) (int64, error) {
	return postgres.Affected(ctx, u.db, "prune users' sessions", pruneUsersSQL, before, limit)
}
