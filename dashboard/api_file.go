package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

// File is the node's own forge.toml, without the settings that concern this node alone.
type File interface {
	// CheckAlerts returns the problems in the file's alerts. ExportAlerts returns the
	// alerts as rules for Prometheus.
	CheckAlerts() ([]alerts.Problem, error)
	ExportAlerts() ([]byte, error)
	// Plan compares the file with the configuration in force. It includes the runs that
	// would appear and vanish within ahead from now.
	Plan(ctx context.Context, ahead time.Duration) (cronstore.Plan, error)
	// Apply puts the file in force, even if a later file superseded it. It calls confirm
	// before it changes anything, and returns confirm's error.
	Apply(ctx context.Context, confirm func(cronstore.Review) error) (cronstore.Outcome, error)
}

// TokenKeeper creates and revokes tokens.
type TokenKeeper interface {
	List(ctx context.Context) ([]access.Token, error)
	// Create returns tokenstore.ErrTaken or ErrOpen, Revoke tokenstore.ErrNotFound.
	Create(ctx context.Context, wanted access.NewToken) (secret string, token access.Token, err error)
	Revoke(ctx context.Context, name, by string) (access.Token, error)
}

const (
	defaultDays = 7
	maxDays     = 366
)

// fileRoutes returns the routes of the node's file and of the cluster's tokens.
func (s *apiServer) fileRoutes() (routes []route) {
	if s.File != nil {
		routes = append(routes,
			route{path: "/api/v1/plan", get: s.apiPlan, read: viewer, gets: answers[cronstore.Plan]("Compare the node's file with the configuration in force", bounded("days", "How many days of runs to compare", maxDays, defaultDays))},
			route{path: "/api/v1/apply", post: s.apiApply, write: admin, posts: takes[applyAsk, cronstore.Outcome](http.StatusOK, "Apply the node's file, even if it is older than the one in force; yes confirms the removal of crons")},
			route{path: "/api/v1/alerts/check", get: s.apiCheckAlerts, read: viewer, gets: lists[alerts.Problem]("Check the alerts of the node's file")},
			route{path: "/api/v1/alerts/export", get: s.apiExportAlerts, read: viewer, gets: texts(yamlMedia, "Export the alerts of the node's file as rules for Prometheus")})
	}
	if s.TokenKeeper != nil {
		routes = append(routes,
			route{
				path: "/api/v1/tokens", get: s.apiTokens, read: admin, gets: lists[access.Token]("List the tokens, without their secrets"),
				post: s.apiCreateToken, write: admin, posts: withSecret("token", takes[tokenAsk, madeToken](http.StatusCreated, "Create a token and return its secret once")), action: "token.create",
			},
			route{path: "/api/v1/tokens/{name}/revoke", post: s.apiRevokeToken, write: admin, posts: does[access.Token](http.StatusOK, "Revoke a token and end its sessions")})
	}
	return routes
}

// withSecret marks the field of the answer that holds a secret.
func withSecret(field string, o *operation) *operation {
	o.secret = field
	return o
}

// yamlMedia is the media type of YAML (RFC 9512), in which Prometheus rules are written.
const yamlMedia = "application/yaml"

func (s *apiServer) apiCheckAlerts(w http.ResponseWriter, r *http.Request) {
	problems, err := s.File.CheckAlerts()
	if err != nil {
		s.answerError(w, r, refuseAlert(err))
		return
	}
	writeJSON(w, http.StatusOK, listOf(problems, ""))
}

func (s *apiServer) apiExportAlerts(w http.ResponseWriter, r *http.Request) {
	rules, err := s.File.ExportAlerts()
	if err != nil {
		s.answerError(w, r, refuseAlert(err))
		return
	}
	w.Header().Set("Content-Type", yamlMedia)
	_, _ = w.Write(rules) // the client is gone
}

func (s *apiServer) apiPlan(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	days := q.upTo("days", defaultDays, maxDays)
	if q.reject(w) {
		return
	}
	plan, err := s.File.Plan(r.Context(), time.Duration(days)*24*time.Hour)
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, plan)
}

// applyAsk says whether the file may remove crons.
type applyAsk struct {
	Yes bool `json:"yes"`
}

// confirm refuses to remove crons, or to apply the file of another cluster, unless Yes is
// set.
func (a applyAsk) confirm(review cronstore.Review) error {
	if a.Yes || review.Harmless() {
		return nil
	}
	return &refusal{http.StatusConflict, fmt.Sprintf(`The file is not applied: %s. Set "yes": true to apply it.`, review)}
}

func (s *apiServer) apiApply(w http.ResponseWriter, r *http.Request) {
	var asked applyAsk
	if err := readJSON(w, r, &asked); err != nil {
		s.answerError(w, r, err)
		return
	}
	outcome, err := s.File.Apply(r.Context(), asked.confirm)
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	noteAction(r.Context(), "configuration "+outcome.InForce)
	writeJSON(w, http.StatusOK, outcome)
}

// tokenAsk describes the token to create.
type tokenAsk struct {
	Name    string `json:"name" body:"required"`
	Scope   string `json:"scope"`
	Expires string `json:"expires"`
}

// madeToken is a new token with its secret. The answer to a repeated request lacks the
// secret.
type madeToken struct {
	access.Token
	Secret string `json:"token,omitempty"`
}

func (a tokenAsk) wanted(by string) (wanted access.NewToken, err error) {
	var wrong []fieldError
	note := func(field string, err error) {
		if err != nil {
			wrong = append(wrong, fieldError{"#" + pointerTo(field), err.Error(), field + ": " + err.Error()})
		}
	}
	wanted = access.NewToken{Name: a.Name, By: by}
	note("name", access.CheckName(a.Name))
	if a.Scope == "" {
		a.Scope = string(access.Viewer)
	}
	wanted.Scope, err = access.ParseScope(a.Scope)
	note("scope", err)
	if a.Expires == "" {
		a.Expires = access.DefaultLife
	}
	wanted.Life, err = access.ParseLife(a.Expires)
	note("expires", err)
	return wanted, wrongFields(wrong...)
}

func (s *apiServer) apiTokens(w http.ResponseWriter, r *http.Request) {
	tokens, err := s.TokenKeeper.List(r.Context())
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, listOf(tokens, ""))
}

func (s *apiServer) apiCreateToken(w http.ResponseWriter, r *http.Request) {
	var asked tokenAsk
	err := readJSON(w, r, &asked)
	var wanted access.NewToken
	if err == nil {
		wanted, err = asked.wanted(requestOrigin(r, viaAPI))
	}
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	secret, token, err := s.TokenKeeper.Create(r.Context(), wanted)
	switch {
	case errors.Is(err, access.ErrTaken):
		s.answerError(w, r, &refusal{http.StatusConflict, fmt.Sprintf("A token %q exists. Choose another name, or revoke it first.", wanted.Name)})
	case errors.Is(err, access.ErrOpen):
		s.answerError(w, r, &refusal{http.StatusConflict, `Tokens can be created over HTTP only with auth = "token". Use forge token create on a machine that reaches the database.`})
	case err != nil:
		s.answerError(w, r, err)
	default:
		noteAction(r.Context(), fmt.Sprintf("%s, %s", token.Name, token.Scope))
		writeJSON(w, http.StatusCreated, madeToken{token, secret})
	}
}

func (s *apiServer) apiRevokeToken(w http.ResponseWriter, r *http.Request) {
	err := readJSON(w, r, &struct{}{})
	var token access.Token
	if err == nil {
		token, err = s.TokenKeeper.Revoke(r.Context(), r.PathValue("name"), requestOrigin(r, viaAPI))
	}
	switch {
	case errors.Is(err, access.ErrNotFound):
		s.answerError(w, r, &refusal{http.StatusNotFound, "There is no such token."})
	case err != nil:
		s.answerError(w, r, err)
	default:
		writeJSON(w, http.StatusOK, token)
	}
}
