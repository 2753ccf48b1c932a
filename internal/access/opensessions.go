package access

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// OpenSession describes the session of a user in a browser.
type OpenSession struct {
	// ID names the session, and does not open it.
	ID string `json:"id"`
	// User is what people call the user; Issuer and Subject identify the user for good.
	User    string `json:"user"`
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	// Groups are the user's groups that give a scope.
	Groups    []string  `json:"groups"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	// Now is the database's clock.
	Now time.Time `json:"-"`
}

// maxOpenSessions bounds the sessions that List returns.
const maxOpenSessions = 500

const openSessionColumns = `encode(substr(hash, 1, 8), 'hex'), name, issuer, subject, groups, created_at, expires_at, clock_timestamp()`

const listOpenSQL = `
SELECT ` + openSessionColumns + `
FROM forge_user_sessions
WHERE expires_at > clock_timestamp() AND ($1 = '' OR issuer = $1 AND subject = $2)
ORDER BY created_at DESC, hash
LIMIT $3`

const endOpenSQL = `
DELETE FROM forge_user_sessions
WHERE encode(substr(hash, 1, 8), 'hex') = $1 AND ($2 = '' OR issuer = $2 AND subject = $3)
RETURNING ` + openSessionColumns

const endUserSQL = `
DELETE FROM forge_user_sessions
WHERE name = $1 OR subject = $1
RETURNING ` + openSessionColumns

// List returns at most 500 sessions that have not ended, the newest first: those of a user, or all
// if issuer is empty.
func (u *UserSessions) List(ctx context.Context, issuer, subject string) ([]OpenSession, error) {
	return postgres.Select(ctx, u.db, "list the sessions of users", pgx.RowToStructByPos[OpenSession], listOpenSQL, issuer, subject, maxOpenSessions)
}

// End ends one session: one of a user, or any if issuer is empty. It returns ErrNotFound if there
// is none.
func (u *UserSessions) End(ctx context.Context, id, issuer, subject string) (OpenSession, error) {
	ended, found, err := postgres.First(ctx, u.db, "end a user's session", pgx.RowToStructByPos[OpenSession], endOpenSQL, id, issuer, subject)
	if err == nil && !found {
		err = ErrNotFound
	}
	return ended, err
}

// EndUser ends the sessions of the users with a name or an identifier, and returns them.
func (u *UserSessions) EndUser(ctx context.Context, user string) ([]OpenSession, error) {
	return postgres.Select(ctx, u.db, "end a user's sessions", pgx.RowToStructByPos[OpenSession], endUserSQL, user)
}
