// Package auditstore owns forge_audit: who did what, who was refused it, and from
// where.
//
// An action is written down before it is done, and its outcome after it: what
// nobody could write down is not done, and what was cut off stays begun.
package auditstore

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Outcomes of actions.
const (
	Begun   = "begun"
	Done    = "done"
	Refused = "refused"
	Failed  = "failed"
)

// Outcomes returns every outcome.
func Outcomes() []string { return []string{Begun, Done, Refused, Failed} }

// maxText is the most bytes kept of a text that a caller chose.
const maxText = 500

// Entry is one action.
type Entry struct {
	ID      int64     `json:"id"`
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Source  string    `json:"source"`
	Action  string    `json:"action"`
	Object  string    `json:"object,omitempty"`
	Outcome string    `json:"outcome"`
	Detail  string    `json:"detail,omitempty"`
}

// Filter chooses entries; zero fields choose all.
type Filter struct {
	Actor, Action, Outcome string
	// BeforeID leaves those from this id on out.
	BeforeID int64
	// AfterID leaves those up to this id out.
	AfterID int64
	// Limit is the most entries.
	Limit int
}

// Queryer is what the store reads and writes through: a pool, a connection or a
// transaction.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

const beginSQL = `
INSERT INTO forge_audit (actor, source, action, object, outcome, detail)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING id`

const endSQL = `UPDATE forge_audit SET outcome = $2, detail = $3 WHERE id = $1`

const listSQL = `
SELECT id, at, actor, source, action, object, outcome, detail
FROM forge_audit
WHERE ($1 = '' OR actor = $1) AND ($2 = '' OR action = $2) AND ($3 = '' OR outcome = $3) AND ($4::bigint = 0 OR id < $4) AND id > $6
ORDER BY id DESC
LIMIT $5`

const pruneSQL = `
DELETE FROM forge_audit
WHERE id = ANY (ARRAY (SELECT id FROM forge_audit WHERE at < $1 ORDER BY at LIMIT $2))`

// Begin writes an entry down and returns its id; without an outcome it is begun.
func Begin(ctx context.Context, db Queryer, e Entry) (id int64, err error) {
	if e.Outcome == "" {
		e.Outcome = Begun
	}
	err = db.QueryRow(ctx, beginSQL, clean(e.Actor), clean(e.Source), clean(e.Action), clean(e.Object), e.Outcome, clean(e.Detail)).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("write %s into the audit log: %w", e.Action, err)
	}
	return id, nil
}

// End says what became of an action.
func End(ctx context.Context, db Queryer, id int64, outcome, detail string) error {
	if _, err := db.Exec(ctx, endSQL, id, outcome, clean(detail)); err != nil {
		return fmt.Errorf("write an outcome into the audit log: %w", err)
	}
	return nil
}

// List returns the newest entries that a filter chooses, newest first.
func List(ctx context.Context, db Queryer, f Filter) ([]Entry, error) {
	rows, err := db.Query(ctx, listSQL, f.Actor, f.Action, f.Outcome, f.BeforeID, f.Limit, f.AfterID)
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	entries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return entries, nil
}

// Prune deletes at most limit entries from before an instant, the oldest first.
func Prune(ctx context.Context, tx pgx.Tx, before time.Time, limit int) (int64, error) {
	tag, err := tx.Exec(ctx, pruneSQL, before, limit)
	return tag.RowsAffected(), err
}

// clean makes a text that a stranger may have chosen one that a table takes and a
// terminal bears.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r):
			return ' '
		case unicode.Is(unicode.Bidi_Control, r):
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
