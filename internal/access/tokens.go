package access

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/postgres"
)

var (
	// ErrTaken means that a token with that name exists and is not revoked.
	ErrTaken = errors.New("a token of that name exists")
	// ErrOpen means that the listener requires no token, so the caller that asks
	// for a token is unknown. A token would let the caller keep its present
	// permissions after the listener is configured to require tokens.
	ErrOpen = errors.New("the listener requires no token")
	// ErrNotFound means that no unrevoked token has that name.
	ErrNotFound = errors.New("no such token")
	// ErrInvalid means that a secret is invalid: it never existed, or its token has
	// expired or was revoked.
	ErrInvalid = errors.New("not a valid token")
)

// NewToken describes a token to create.
type NewToken struct {
	Name  string
	Scope Scope
	// Life is how long the token is valid; 0: until it is revoked.
	Life time.Duration
	// By is who creates it.
	By string
}

// validName matches valid token names: the event log and the audit log show them.
var validName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._@-]{0,61}[A-Za-z0-9])?$`)

// reserved are names that the audit log uses for callers without a token.
var reserved = []string{"anonymous", "cli", "forge", "system"}

// CheckName returns what is wrong with a name.
func CheckName(name string) error {
	if slices.Contains(reserved, strings.ToLower(name)) {
		return fmt.Errorf("the name %q is reserved: want another", name)
	}
	if !validName.MatchString(name) {
		return fmt.Errorf("the name %q: want 1 to 63 letters, digits and . _ @ -, with a letter or digit at both ends", name)
	}
	return nil
}

const (
	// Never is the text for the life of a token that does not expire.
	Never = "never"
	// DefaultLife is the default life of a token.
	DefaultLife = "90d"
)

// ParseLife parses the life of a token; 0 means that it does not expire.
func ParseLife(text string) (time.Duration, error) {
	if text == Never {
		return 0, nil
	}
	life, err := config.ParseDuration(text)
	if err != nil || life.Std() < time.Minute {
		return 0, errors.New("want a duration from 1m on such as 12h or 90d, or never")
	}
	return life.Std(), nil
}

// The states of a token.
const (
	StateActive  = "active"
	StateExpired = "expired"
	StateRevoked = "revoked"
)

// Token describes a token without its secret.
type Token struct {
	ID        int64     `json:"id"`
	Name      string    `json:"name"`
	Scope     Scope     `json:"scope"`
	State     string    `json:"state"`
	CreatedBy string    `json:"created_by"`
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt is zero for a token that does not expire.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// LastUsedAt is accurate to the minute, and zero for a token that was never
	// used.
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
	RevokedBy  string    `json:"revoked_by,omitempty"`
	// Now is the database's clock.
	Now time.Time `json:"-"`
}

const columns = `
id, name, scope,
CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= now() THEN 'expired' ELSE 'active' END,
created_by, created_at, expires_at, last_used_at, revoked_at, coalesce(revoked_by, ''), now()`

const createSQL = `
INSERT INTO forge_tokens (name, hash, scope, created_by, expires_at)
VALUES ($1, $2, $3, $4, clock_timestamp() + nullif($5::interval, '0'))
ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING
RETURNING` + columns

const listTokensSQL = `SELECT` + columns + ` FROM forge_tokens ORDER BY revoked_at IS NOT NULL, name, id`

const revokeSQL = `
UPDATE forge_tokens
SET revoked_at = clock_timestamp(), revoked_by = $2
WHERE name = $1 AND revoked_at IS NULL
RETURNING` + columns

// Expired and revoked tokens are kept for a while, so that names in the audit log
// can be looked up.
const pruneTokensSQL = `
DELETE FROM forge_tokens
WHERE id IN (
    SELECT id FROM forge_tokens
    WHERE least(revoked_at, expires_at) < $1
    LIMIT $2)`

// Tokens are the tokens and login sessions of a database.
type Tokens struct{ db postgres.DB }

// NewTokens returns the tokens of a database.
func NewTokens(db postgres.DB) *Tokens { return &Tokens{db} }

// Create creates a token and returns its secret, which cannot be read later.
// It returns ErrTaken if the name is in use.
func (t *Tokens) Create(ctx context.Context, wanted NewToken) (secret string, token Token, err error) {
	if err := CheckName(wanted.Name); err != nil {
		return "", Token{}, err
	}
	secret = newSecret(tokenPrefix)
	hash, _ := hashOf(tokenPrefix, secret)
	token, err = t.one(ctx, ErrTaken, createSQL, wanted.Name, hash, wanted.Scope, wanted.By, wanted.Life)
	if err != nil {
		return "", Token{}, fmt.Errorf("create token %s: %w", wanted.Name, err)
	}
	return secret, token, nil
}

// List returns all tokens, revoked tokens last.
func (t *Tokens) List(ctx context.Context) ([]Token, error) {
	tokens, err := postgres.Collect(ctx, t.db, scanToken, listTokensSQL)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	return tokens, nil
}

// Revoke revokes a token and ends all its sessions. It returns ErrNotFound if
// there is no such token.
func (t *Tokens) Revoke(ctx context.Context, name, by string) (Token, error) {
	token, err := t.one(ctx, ErrNotFound, revokeSQL, name, by)
	if err != nil {
		return Token{}, fmt.Errorf("revoke token %s: %w", name, err)
	}
	return token, nil
}

// Prune deletes at most limit tokens that ended before an instant.
func (t *Tokens) Prune(ctx context.Context, before time.Time, limit int) (int64, error) {
	return postgres.Affected(ctx, t.db, "prune tokens", pruneTokensSQL, before, limit)
}

// one returns missing if the statement returns no row.
func (t *Tokens) one(ctx context.Context, missing error, sql string, args ...any) (Token, error) {
	rows, err := t.db.Query(ctx, sql, args...)
	if err != nil {
		return Token{}, err
	}
	token, err := pgx.CollectExactlyOneRow(rows, scanToken)
	if errors.Is(err, pgx.ErrNoRows) {
		err = missing
	}
	return token, err
}

func scanToken(row pgx.CollectableRow) (Token, error) {
	var (
		t                      Token
		expires, used, revoked *time.Time
	)
	err := row.Scan(&t.ID, &t.Name, &t.Scope, &t.State, &t.CreatedBy, &t.CreatedAt, &expires, &used, &revoked, &t.RevokedBy, &t.Now)
	t.ExpiresAt, t.LastUsedAt, t.RevokedAt = postgres.TimeOrZero(expires), postgres.TimeOrZero(used), postgres.TimeOrZero(revoked)
	return t, err
}
