// Package route describes routes: their paths, handlers, scopes and, for the OpenAPI
// document, their operations.
package route

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/forge-scheduler/forge/internal/access"
)

// Route is a path with its handlers for GET (and HEAD) and POST, and the scope that each
// needs.
type Route struct {
	Path        string
	Get, Post   http.HandlerFunc
	Read, Write access.Scope
	// Gets and Posts describe the operations for the OpenAPI document; nil means that the
	// operation is not part of the API.
	Gets, Posts *Operation
	// Action is the name of the POST in the audit log, if it does not follow from the path.
	Action string
}

// The scopes of routes. A route without a scope rejects every request.
const (
	Open     access.Scope = "open" // no token needed
	Viewer                = access.Viewer
	Operator              = access.Operator
	Admin                 = access.Admin
)

// Placeholder matches a parameter in the path of a route.
var Placeholder = regexp.MustCompile(`\{(\w+)\}`)

// commands maps parts of paths to the words of the commands, so that an action has the same
// name through the API, the pages and the commands.
var commands = map[string]string{
	"crons": "cron", "jobs": "job", "queues": "queue", "leaders": "leader", "nodes": "node", "tokens": "token", "sessions": "session", "bulk": "",
}

// ActionName returns the name of a route's POST in the audit log.
func (r Route) ActionName() string {
	if r.Action != "" {
		return r.Action
	}
	var words []string
	for part := range strings.SplitSeq(strings.TrimPrefix(Placeholder.ReplaceAllString(r.Path, ""), "/api/v1"), "/") {
		if word, ok := commands[part]; ok {
			part = word
		}
		if part != "" {
			words = append(words, part)
		}
	}
	return strings.Join(words, ".")
}

// IsRateLimited reports whether the rate of requests to a path is limited.
func IsRateLimited(path string) bool { return strings.HasPrefix(path, "/api/") }

// IsProbe reports whether path is that of a probe. Probes are answered even if the
// connection limit is exceeded.
func IsProbe(path string) bool {
	return path == "/healthz" || path == "/readyz" || len(path) > len("/leader/") && strings.HasPrefix(path, "/leader/")
}

// Allow lists the methods of a route.
func (r Route) Allow() string {
	switch {
	case r.Post == nil:
		return "GET, HEAD"
	case r.Get == nil:
		return "POST"
	default:
		return "GET, HEAD, POST"
	}
}

// LeastScope returns the scope that a caller needs to learn which methods a route has.
func (r Route) LeastScope() access.Scope {
	if r.Get == nil {
		return r.Write
	}
	return r.Read
}
