package cluster

import (
	"context"
	"errors"
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

// SessionKeeper lists and ends the sessions of users.
type SessionKeeper interface {
	// List and End concern all sessions if issuer is empty. End returns access.ErrNotFound.
	List(ctx context.Context, issuer, subject string) ([]access.OpenSession, error)
	End(ctx context.Context, id, issuer, subject string) (access.OpenSession, error)
}

// OpenSessions returns the sessions that the caller may end: all for an admin, and a user's own.
func (s *Cluster) OpenSessions(ctx context.Context, required bool) ([]access.OpenSession, error) {
	issuer, subject, some := callersSessions(ctx, required)
	if !some {
		return []access.OpenSession{}, nil
	}
	return s.SessionKeeper.List(ctx, issuer, subject)
}

// EndSession ends a session that OpenSessions returns.
func (s *Cluster) EndSession(ctx context.Context, id string, required bool) (ended access.OpenSession, err error) {
	issuer, subject, some := callersSessions(ctx, required)
	if err = access.ErrNotFound; some {
		ended, err = s.SessionKeeper.End(ctx, id, issuer, subject)
	}
	if errors.Is(err, access.ErrNotFound) {
		return ended, web.Refuse(http.StatusNotFound, "There is no such session. It may have ended.")
	}
	if err == nil {
		auth.NoteAction(ctx, "of "+ended.User+", subject "+ended.Subject)
	}
	return ended, err
}

// callersSessions returns whose sessions the caller of a request may end. required reports that
// this node requires a login: without, everybody may do what an admin may.
func callersSessions(ctx context.Context, required bool) (issuer, subject string, some bool) {
	caller := auth.CallerOf(ctx)
	switch {
	case !required || caller.Scope.Covers(access.Admin):
		return "", "", true
	case caller.IsUser():
		return caller.Issuer, caller.Subject, true
	default:
		return "", "", false
	}
}
