package tokenstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/config"
)

var (
	// ErrTaken says that a token with that name is there and not revoked.
	ErrTaken = errors.New("a token of that name exists")
	// ErrOpen says that whoever asks for a token is not known: the listener asks nobody.
	// They could keep what they may do now for the time after that is changed.
	ErrOpen = errors.New("the listener asks nobody who they are")
	// ErrNotFound says that no token of that name is there that is not revoked.
	ErrNotFound = errors.New("no such token")
	// ErrInvalid says that a secret belongs to nobody: it never did, or its token
	// has expired or was revoked.
	ErrInvalid = errors.New("not a valid token")
)

// Queryer is what the store reads and writes through: a pool, a connection or a
// transaction.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// New is a token to make.
type New struct {
	Name  string
	Scope Scope
	// Life is how long it is good for; 0: until it is revoked.
	Life time.Duration
	// By says who makes it.
	By string
}

// goodName is how tokens may be called: the diary and the audit log show it.
var goodName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._@-]{0,61}[A-Za-z0-9])?$`)

// reserved are names that the audit log gives to those who have no token.
var reserved = []string{"anonymous", "cli", "forge", "system"}

// CheckName says what is wrong with a name.
func CheckName(name string) error {
	if slices.Contains(reserved, strings.ToLower(name)) {
		return fmt.Errorf("the name %q is reserved: want another", name)
	}
	if !goodName.MatchString(name) {
		return fmt.Errorf("the name %q: want 1 to 63 letters, digits and . _ @ -, with a letter or digit at both ends", name)
	}
	return nil
}

const (
	// Never is the life of a token that does not expire, in words.
	Never = "never"
	// DefaultLife is how long a token is good for of which nothing is said.
	DefaultLife = "90d"
)

// ParseLife reads how long a token is to be good for; 0 is for ever.
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

// Token is what is known of a token, which is all but the token.
type Token struct {
	ID        int64     `json:"id"`
	Name      string    `json:"name"`
	Scope     Scope     `json:"scope"`
	State     string    `json:"state"` // active, expired or revoked
	CreatedBy string    `json:"created_by"`
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt is zero for one that does not expire.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// LastUsedAt is to the minute, and zero for one that was never used.
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

const listSQL = `SELECT` + columns + ` FROM forge_tokens ORDER BY revoked_at IS NOT NULL, name, id`

const revokeSQL = `
UPDATE forge_tokens
SET revoked_at = clock_timestamp(), revoked_by = $2
WHERE name = $1 AND revoked_at IS NULL
RETURNING` + columns

// Tokens that are no longer good are kept for a while, so that the audit log's
// names can be looked up.
const pruneTokensSQL = `
DELETE FROM forge_tokens
WHERE id IN (
    SELECT id FROM forge_tokens
    WHERE least(revoked_at, expires_at) < $1
    LIMIT $2)`

// Create makes a token and returns its secret, which nobody can find out later.
// It returns ErrTaken where the name is in use.
func Create(ctx context.Context, db Queryer, wanted New) (secret string, token Token, err error) {
	if err := CheckName(wanted.Name); err != nil {
		return "", Token{}, err
	}
	secret = newSecret(tokenPrefix)
	hash, _ := hashOf(tokenPrefix, secret)
	token, err = one(ctx, db, ErrTaken, createSQL, wanted.Name, hash, wanted.Scope, wanted.By, wanted.Life)
	if err != nil {
		return "", Token{}, fmt.Errorf("create token %s: %w", wanted.Name, err)
	}
	return secret, token, nil
}

// List returns all tokens, those that were revoked last.
func List(ctx context.Context, db Queryer) ([]Token, error) {
	rows, err := db.Query(ctx, listSQL)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	tokens, err := pgx.CollectRows(rows, scanToken)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	return tokens, nil
}

// Revoke ends a token and all its sessions. It returns ErrNotFound for one that
// is not there.
func Revoke(ctx context.Context, db Queryer, name, by string) (Token, error) {
	token, err := one(ctx, db, ErrNotFound, revokeSQL, name, by)
	if err != nil {
		return Token{}, fmt.Errorf("revoke token %s: %w", name, err)
	}
	return token, nil
}

// PruneTokens deletes at most limit tokens that ended before an instant.
func PruneTokens(ctx context.Context, tx pgx.Tx, before time.Time, limit int) (int64, error) {
	tag, err := tx.Exec(ctx, pruneTokensSQL, before, limit)
	return tag.RowsAffected(), err
}

// one returns missing where the statement has no row.
func one(ctx context.Context, db Queryer, missing error, sql string, args ...any) (Token, error) {
	rows, err := db.Query(ctx, sql, args...)
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
	t.ExpiresAt, t.LastUsedAt, t.RevokedAt = orZero(expires), orZero(used), orZero(revoked)
	return t, err
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
