package access

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Outcomes of actions.
const (
	Begun   = "begun"
	Done    = "done"
	Refused = "refused"
	Failed  = "failed"
)

// AuditOutcomes returns every outcome.
func AuditOutcomes() []string { return []string{Begun, Done, Refused, Failed} }

// maxText is the maximum length in bytes of stored text that a caller chose.
const maxText = 500

// AuditEntry is an action in the audit log.
type AuditEntry struct {
	ID    int64     `json:"id"`
	At    time.Time `json:"at"`
	Actor string    `json:"actor"`
	// Subject is the identifier of a user at the provider; empty for all others.
	Subject string `json:"subject,omitempty"`
	Source  string `json:"source"`
	Action  string `json:"action"`
	Object  string `json:"object,omitempty"`
	Outcome string `json:"outcome"`
	Detail  string `json:"detail,omitempty"`
}

// AuditFilter selects entries; zero fields match all.
type AuditFilter struct {
	Actor, Subject, Action, Outcome string
	// BeforeID selects entries with smaller ids.
	BeforeID int64
	// AfterID selects entries with greater ids.
	AfterID int64
	// Oldest selects the oldest entries, oldest first, instead of the newest.
	Oldest bool
	// Limit is the maximum number of entries.
	Limit int
}

const beginSQL = `
INSERT INTO forge_audit (actor, subject, source, action, object, outcome, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING id`

const endSQL = `UPDATE forge_audit SET outcome = $2, detail = $3 WHERE id = $1`

const (
	listAuditSQL = `
SELECT id, at, actor, subject, source, action, object, outcome, detail
FROM forge_audit
WHERE ($1 = '' OR actor = $1) AND ($7 = '' OR subject = $7) AND ($2 = '' OR action = $2) AND ($3 = '' OR outcome = $3) AND ($4::bigint = 0 OR id < $4) AND id > $6`
	newestAuditSQL = listAuditSQL + `
ORDER BY id DESC
LIMIT $5`
	oldestAuditSQL = listAuditSQL + `
ORDER BY id
LIMIT $5`
)

const pruneAuditSQL = `
DELETE FROM forge_audit
WHERE id = ANY (ARRAY (SELECT id FROM forge_audit WHERE at < $1 ORDER BY at LIMIT $2))`

// Audit is the audit log.
type Audit struct{ db postgres.DB }

// NewAudit returns the audit log of a database.
func NewAudit(db postgres.DB) *Audit { return &Audit{db} }

// Begin writes an entry and returns its id. An entry without an outcome gets
// Begun.
func (a *Audit) Begin(ctx context.Context, e AuditEntry) (id int64, err error) {
	if e.Outcome == "" {
		e.Outcome = Begun
	}
	err = a.db.QueryRow(ctx, beginSQL, clean(e.Actor), clean(e.Subject), clean(e.Source), clean(e.Action), clean(e.Object), e.Outcome, clean(e.Detail)).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("write %s to the audit log: %w", e.Action, err)
	}
	return id, nil
}

// End records the outcome of an action.
func (a *Audit) End(ctx context.Context, id int64, outcome, detail string) error {
	if _, err := a.db.Exec(ctx, endSQL, id, outcome, clean(detail)); err != nil {
		return fmt.Errorf("write an outcome to the audit log: %w", err)
	}
	return nil
}

// List returns the entries that match a filter, newest first unless it selects the oldest.
func (a *Audit) List(ctx context.Context, f AuditFilter) ([]AuditEntry, error) {
	sql := newestAuditSQL
	if f.Oldest {
		sql = oldestAuditSQL
	}
	entries, err := postgres.Collect(ctx, a.db, pgx.RowToStructByPos[AuditEntry], sql, f.Actor, f.Action, f.Outcome, f.BeforeID, f.Limit, f.AfterID, f.Subject)
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return entries, nil
}

// Prune deletes at most limit entries that are older than before, the oldest first.
func (a *Audit) Prune(ctx context.Context, before time.Time, limit int) (int64, error) {
	return postgres.Affected(ctx, a.db, "prune the audit log", pruneAuditSQL, before, limit)
}

// clean makes untrusted text safe to store and to print on a terminal.
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
