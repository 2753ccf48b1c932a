package access

import (
	"fmt"
	"slices"
)

// Scope is what a token may do. Each scope includes the previous ones.
type Scope string

const (
	// Viewer reads everything except the audit log.
	Viewer Scope = "viewer"
	// Operator also acts on crons, jobs, queues and dead letters.
	Operator Scope = "operator"
	// Admin also acts on leaders, nodes, tokens and the file in force, and reads
	// the audit log.
	Admin Scope = "admin"
)

// Scopes lists all scopes, the narrowest first.
var Scopes = []Scope{Viewer, Operator, Admin}

// Covers reports whether the scope includes need. An unknown scope covers nothing,
// and no scope covers it.
func (s Scope) Covers(need Scope) bool {
	has, wants := slices.Index(Scopes, s), slices.Index(Scopes, need)
	return wants >= 0 && has >= wants
}

// May describes what a holder of the scope may do, as the end of a sentence about the holder.
func (s Scope) May() string {
	switch s {
	case Viewer:
		return "may read everything but tokens and the audit log"
	case Operator:
		return "may read everything but tokens and the audit log, and act on crons, jobs, queues, dead letters and alerts"
	case Admin:
		return "may read everything and do everything"
	default:
		return "may do nothing"
	}
}

// ParseScope parses the name of a scope.
func ParseScope(text string) (Scope, error) {
	if scope := Scope(text); slices.Contains(Scopes, scope) {
		return scope, nil
	}
	return "", fmt.Errorf("unknown scope %q; want viewer, operator or admin", text)
}
