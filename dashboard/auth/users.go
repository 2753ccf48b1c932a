package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/access"
)

// Provider logs users in.
type Provider interface {
	// Issuer is the provider's address, Origin the scheme and host of the pages to which it
	// leads back.
	Issuer() string
	Origin() string
	// Check returns why nobody can log in now.
	Check(ctx context.Context) error
	// Begin returns the address at which a user logs in. Complete returns what the provider
	// says about the user once it has led back, Refresh what it says now. Their errors wrap
	// access.ErrInvalid if the provider refuses, and not if it does not answer.
	Begin(ctx context.Context, attempt access.LoginAttempt) (address string, err error)
	Complete(ctx context.Context, attempt access.LoginAttempt, code string) (access.Login, error)
	Refresh(ctx context.Context, of access.Login) (access.Login, error)
	// LogoutURL returns the address that ends the provider's session, or "".
	LogoutURL(ctx context.Context, idToken string) string
	// EndedSession returns whose sessions a logout token of the provider ends.
	EndedSession(ctx context.Context, token string) (subject, session string, err error)
}

// UserSessions stores the sessions of users.
type UserSessions interface {
	Open(ctx context.Context, of access.Login) (session string, err error)
	Session(ctx context.Context, session string) (access.UserSession, error)
	// Claim reports whether the caller may extend a session; nobody else may for a while, or
	// until Release or Extend.
	Claim(ctx context.Context, session string, known access.UserSession, within time.Duration) (bool, error)
	Release(ctx context.Context, session string) error
	Extend(ctx context.Context, session string, now access.Login) error
	Close(ctx context.Context, session string) error
	CloseAll(ctx context.Context, issuer, subject, providerSession string) (int64, error)
}

// Users are who may use the listener without a token.
type Users struct {
	// Groups are the scopes that groups of users give.
	Groups access.GroupScopes
	// Provider logs users in, and Sessions has their sessions. Both are nil without one.
	Provider Provider
	Sessions UserSessions
	// Proxy names users by headers.
	Proxy ProxyHeaders

	logger *slog.Logger
}

const (
	// extendTimeout bounds how long extending a session may take.
	extendTimeout = 12 * time.Second
	// extendPoll is how often a request looks whether another one has extended the session.
	extendPoll = 100 * time.Millisecond
	// maxGroupsText is the length to which a user's groups are shown.
	maxGroupsText = 1000
)

// errUnconfirmed means that the provider cannot confirm a session now.
var errUnconfirmed = fmt.Errorf("%w: the provider cannot confirm the session now", access.ErrInvalid)

// holder returns the user of a session, which it extends if the provider's word has ended.
func (u *Users) holder(ctx context.Context, session string) (access.Holder, error) {
	if u.Provider == nil {
		return access.Holder{}, access.ErrInvalid
	}
	ctx, cancel := context.WithTimeout(ctx, extendTimeout)
	defer cancel()
	for {
		s, err := u.Sessions.Session(ctx, session)
		switch {
		case err != nil:
			return access.Holder{}, err
		case s.Issuer != u.Provider.Issuer():
			return access.Holder{}, access.ErrInvalid
		case s.Now.Before(s.ValidUntil):
			return u.holderOf(s.User, s.ValidUntil), nil
		case s.RefreshToken == "":
			return access.Holder{}, access.ErrInvalid
		}
		claimed, err := u.Sessions.Claim(ctx, session, s, extendTimeout)
		if err != nil {
			return access.Holder{}, err
		}
		if claimed {
			return u.extend(ctx, session, s)
		}
		select {
		case <-ctx.Done():
			return access.Holder{}, errUnconfirmed
		case <-time.After(extendPoll):
		}
	}
}

func (u *Users) holderOf(user access.User, until time.Time) access.Holder {
	who := user.Holder(u.Groups)
	who.Until = until
	return who
}

// extend extends a session that the caller has claimed. It continues if the caller is gone,
// because providers accept a refresh token once.
func (u *Users) extend(ctx context.Context, session string, s access.UserSession) (access.Holder, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), extendTimeout)
	defer cancel()
	now, err := u.Provider.Refresh(ctx, s.Login)
	switch {
	case errors.Is(err, access.ErrInvalid):
		u.logger.InfoContext(ctx, "the provider has ended a login", "user", s.Name, "subject", s.Subject, "error", err)
		return access.Holder{}, errors.Join(access.ErrInvalid, u.Sessions.Close(ctx, session))
	case err != nil:
		u.logger.WarnContext(ctx, "the provider does not extend a login", "user", s.Name, "subject", s.Subject, "error", err)
		return access.Holder{}, errors.Join(errUnconfirmed, u.Sessions.Release(ctx, session))
	}
	now.Groups = u.Groups.Known(now.Groups)
	if err := u.Sessions.Extend(ctx, session, now); err != nil {
		return access.Holder{}, err
	}
	return u.holderOf(now.User, s.Now.Add(now.Valid)), nil
}

// Lacking tells a user which groups give a scope, and which groups the user has.
func (u *Users) Lacking(who access.Holder, groups string, need access.Scope) string {
	has := "the scope " + string(who.Scope)
	if who.Scope == "" {
		has = "no scope"
	}
	switch {
	case groups == "":
		groups = "none that is known here"
	case len(groups) > maxGroupsText:
		groups = strings.ToValidUTF8(groups[:maxGroupsText], "") + "…"
	}
	return fmt.Sprintf("This needs the scope %s, which these groups give: %s. %s has %s. The user's groups: %s.",
		need, u.granting(need), strings.TrimPrefix(who.Name, "user:"), has, groups)
}

// granting lists the groups that give a scope.
func (u *Users) granting(need access.Scope) string {
	var groups []string
	for group, scope := range u.Groups {
		if scope.Covers(need) {
			groups = append(groups, group)
		}
	}
	if len(groups) == 0 {
		return "none"
	}
	slices.Sort(groups)
	return strings.Join(groups, ", ")
}
