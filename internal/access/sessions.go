package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// SessionLife is the lifetime of a session.
const SessionLife = 12 * time.Hour

// Holder is the token behind a secret, or a user.
type Holder struct {
	// ID is the token's id. A name may be reused once its token is revoked, an id
	// may not. It is 0 for a user.
	ID int64
	// Name is the token's name, or "user:" and the user's name.
	Name  string
	Scope Scope
	// Issuer and Subject identify a user; they are empty for a token.
	Issuer, Subject string
	// Groups lists the groups that give the user a scope.
	Groups string
	// Until is when the provider's word about the user ends; zero for a token.
	Until time.Time
}

// IsUser reports whether the holder is a user and not a token.
func (h Holder) IsUser() bool { return h.Subject != "" }

// A use is recorded at most once a minute, so that most reads do not write.
const verifySQL = `
WITH good AS (
    SELECT id, name, scope, last_used_at FROM forge_tokens
    WHERE hash = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
), noted AS (
    UPDATE forge_tokens SET last_used_at = date_trunc('minute', now())
    WHERE id IN (SELECT id FROM good WHERE coalesce(last_used_at, '-infinity') < date_trunc('minute', now()))
)
SELECT id, name, scope FROM good`

const sessionSQL = `
SELECT t.id, t.name, t.scope
FROM forge_sessions AS s JOIN forge_tokens AS t ON t.id = s.token_id
WHERE s.hash = $1 AND s.expires_at > now()
  AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())`

const openSQL = `
INSERT INTO forge_sessions (hash, token_id, expires_at)
SELECT $2, id, least(clock_timestamp() + $3::interval, expires_at)
FROM forge_tokens
WHERE hash = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
RETURNING token_id, (SELECT name FROM forge_tokens WHERE id = token_id), (SELECT scope FROM forge_tokens WHERE id = token_id)`

const closeSQL = `DELETE FROM forge_sessions WHERE hash = $1`

const pruneSessionsSQL = `
DELETE FROM forge_sessions
WHERE hash IN (SELECT hash FROM forge_sessions WHERE expires_at < $1 LIMIT $2)`

// Verify returns the holder of a token, or ErrInvalid.
func (t *Tokens) Verify(ctx context.Context, token string) (Holder, error) {
	return t.holder(ctx, verifySQL, tokenPrefix, token)
}

// Session returns the holder of a session, or ErrInvalid.
func (t *Tokens) Session(ctx context.Context, session string) (Holder, error) {
	return t.holder(ctx, sessionSQL, sessionPrefix, session)
}

// Login opens a session for a token, or returns ErrInvalid.
func (t *Tokens) Login(ctx context.Context, token string) (session string, of Holder, err error) {
	session = newSecret(sessionPrefix)
	hash, _ := hashOf(sessionPrefix, session)
	of, err = t.holder(ctx, openSQL, tokenPrefix, token, hash, SessionLife)
	if err != nil {
		return "", Holder{}, err
	}
	return session, of, nil
}

// Logout ends a session; it is no error if the session has ended.
func (t *Tokens) Logout(ctx context.Context, session string) error {
	hash, ok := hashOf(sessionPrefix, session)
	if !ok {
		return nil
	}
	if _, err := t.db.Exec(ctx, closeSQL, hash); err != nil {
		return fmt.Errorf("end a session: %w", err)
	}
	return nil
}

// PruneSessions deletes at most limit sessions that ended before an instant.
func (t *Tokens) PruneSessions(ctx context.Context, before time.Time, limit int) (int64, error) {
	return postgres.Affected(ctx, t.db, "prune sessions", pruneSessionsSQL, before, limit)
}

func (t *Tokens) holder(ctx context.Context, sql, prefix, secret string, more ...any) (Holder, error) {
	hash, ok := hashOf(prefix, secret)
	if !ok {
		return Holder{}, ErrInvalid
	}
	rows, err := t.db.Query(ctx, sql, append([]any{hash}, more...)...)
	if err != nil {
		return Holder{}, fmt.Errorf("look up a token: %w", err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, scanHolder)
	if errors.Is(err, pgx.ErrNoRows) {
		return Holder{}, ErrInvalid
	}
	if err != nil {
		return Holder{}, fmt.Errorf("look up a token: %w", err)
	}
	return found, nil
}

func scanHolder(row pgx.CollectableRow) (h Holder, err error) {
	err = row.Scan(&h.ID, &h.Name, &h.Scope)
	return h, err
}
