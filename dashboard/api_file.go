package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/internal/alertstore"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/tokenstore"
)

// File is the node's own forge.toml, as far as it is the cluster's.
type File interface {
	// CheckAlerts says what is wrong with the file's alerts, ExportAlerts writes them
	// as rules for Prometheus.
	CheckAlerts() []alertstore.Problem
	ExportAlerts() ([]byte, error)
	// Plan says what the file would change against what is in force, and which runs
	// of a stretch of time from now would appear and vanish.
	Plan(ctx context.Context, ahead time.Duration) (cronstore.Plan, error)
	// Apply puts the file in force, also one that was superseded. It returns the error
	// of confirm, which is called before anything changes.
	Apply(ctx context.Context, confirm func(cronstore.Review) error) (cronstore.Outcome, error)
}

// TokenKeeper makes tokens and ends them.
type TokenKeeper interface {
	List(ctx context.Context) ([]tokenstore.Token, error)
	// Create returns tokenstore.ErrTaken or ErrOpen, Revoke tokenstore.ErrNotFound.
	Create(ctx context.Context, wanted tokenstore.New) (secret string, token tokenstore.Token, err error)
	Revoke(ctx context.Context, name, by string) (tokenstore.Token, error)
}

const (
	defaultDays = 7
	maxDays     = 366
)

// fileRoutes are about the node's file and the cluster's tokens.
func (s *server) fileRoutes() (routes []route) {
	if s.File != nil {
		routes = append(routes,
			route{path: "/api/v1/plan", get: s.apiPlan, read: viewer, gets: answers[cronstore.Plan]("Say what the node's file would change against what is in force", bounded("days", "How many days of runs to compare", maxDays, defaultDays))},
			route{path: "/api/v1/apply", post: s.apiApply, write: admin, posts: takes[applyAsk, cronstore.Outcome](http.StatusOK, "Put the node's file in force, also to go back to an earlier one; yes confirms that it may remove crons")},
			route{path: "/api/v1/alerts/check", get: s.apiCheckAlerts, read: viewer, gets: lists[alertstore.Problem]("Say what is wrong with the alerts of the node's file")},
			route{path: "/api/v1/alerts/export", get: s.apiExportAlerts, read: viewer, gets: texts(yamlMedia, "Write the alerts of the node's file as rules for Prometheus")})
	}
	if s.TokenKeeper != nil {
		routes = append(routes,
			route{
				path: "/api/v1/tokens", get: s.apiTokens, read: admin, gets: lists[tokenstore.Token]("List the tokens, without their secrets"),
				post: s.apiCreateToken, write: admin, posts: unkept("token", takes[tokenAsk, madeToken](http.StatusCreated, "Make a token and show it, this once")), action: "token.create",
			},
			route{path: "/api/v1/tokens/{name}/revoke", post: s.apiRevokeToken, write: admin, posts: does[tokenstore.Token](http.StatusOK, "End a token and its sessions")})
	}
	return routes
}

// unkept is for an answer with a secret in a field.
func unkept(field string, o *operation) *operation {
	o.secret = field
	return o
}

// yamlMedia is what Prometheus' rules are written in (RFC 9512).
const yamlMedia = "application/yaml"

func (s *server) apiCheckAlerts(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, listOf(s.File.CheckAlerts(), ""))
}

func (s *server) apiExportAlerts(w http.ResponseWriter, r *http.Request) {
	rules, err := s.File.ExportAlerts()
	if err != nil {
		s.unreadable(w, r, err)
		return
	}
	w.Header().Set("Content-Type", yamlMedia)
	_, _ = w.Write(rules) // the client is gone
}

func (s *server) apiPlan(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	days := q.upTo("days", defaultDays, maxDays)
	if q.reject(w) {
		return
	}
	plan, err := s.File.Plan(r.Context(), time.Duration(days)*24*time.Hour)
	if err != nil {
		s.unreadable(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, plan)
}

// applyAsk says whether the file may remove crons.
type applyAsk struct {
	Yes bool `json:"yes"`
}

// confirm refuses to remove crons, or to apply the file of another cluster, unasked.
func (a applyAsk) confirm(review cronstore.Review) error {
	if a.Yes || review.Harmless() {
		return nil
	}
	return &refusal{http.StatusConflict, fmt.Sprintf(`The file is not applied: %s. Say "yes": true to apply it.`, review)}
}

func (s *server) apiApply(w http.ResponseWriter, r *http.Request) {
	var asked applyAsk
	if err := readJSON(w, r, &asked); err != nil {
		s.answer(w, r, err)
		return
	}
	outcome, err := s.File.Apply(r.Context(), asked.confirm)
	if err != nil {
		s.answer(w, r, err)
		return
	}
	noteDown(r.Context(), "configuration "+outcome.InForce)
	writeJSON(w, http.StatusOK, outcome)
}

// tokenAsk is a token as programs ask for it.
type tokenAsk struct {
	Name    string `json:"name" body:"required"`
	Scope   string `json:"scope"`
	Expires string `json:"expires"`
}

// madeToken is a new token with its secret, which a repeat is not told again.
type madeToken struct {
	tokenstore.Token
	Secret string `json:"token,omitempty"`
}

func (a tokenAsk) wanted(by string) (wanted tokenstore.New, err error) {
	var wrong []fieldError
	note := func(field string, err error) {
		if err != nil {
			wrong = append(wrong, fieldError{"#" + pointerTo(field), err.Error(), field + ": " + err.Error()})
		}
	}
	wanted = tokenstore.New{Name: a.Name, By: by}
	note("name", tokenstore.CheckName(a.Name))
	if a.Scope == "" {
		a.Scope = string(tokenstore.Viewer)
	}
	wanted.Scope, err = tokenstore.ParseScope(a.Scope)
	note("scope", err)
	if a.Expires == "" {
		a.Expires = tokenstore.DefaultLife
	}
	wanted.Life, err = tokenstore.ParseLife(a.Expires)
	note("expires", err)
	return wanted, wrongFields(wrong...)
}

func (s *server) apiTokens(w http.ResponseWriter, r *http.Request) {
	tokens, err := s.TokenKeeper.List(r.Context())
	if err != nil {
		s.unreadable(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, listOf(tokens, ""))
}

func (s *server) apiCreateToken(w http.ResponseWriter, r *http.Request) {
	var asked tokenAsk
	err := readJSON(w, r, &asked)
	var wanted tokenstore.New
	if err == nil {
		wanted, err = asked.wanted(whoAsks(r, viaAPI))
	}
	if err != nil {
		s.answer(w, r, err)
		return
	}
	secret, token, err := s.TokenKeeper.Create(r.Context(), wanted)
	switch {
	case errors.Is(err, tokenstore.ErrTaken):
		s.answer(w, r, &refusal{http.StatusConflict, fmt.Sprintf("A token %q exists. Choose another name, or revoke it first.", wanted.Name)})
	case errors.Is(err, tokenstore.ErrOpen):
		s.answer(w, r, &refusal{http.StatusConflict, `Tokens are made here only where auth = "token". Use forge token create where the database can be reached.`})
	case err != nil:
		s.answer(w, r, err)
	default:
		noteDown(r.Context(), fmt.Sprintf("%s, %s", token.Name, token.Scope))
		writeJSON(w, http.StatusCreated, madeToken{token, secret})
	}
}

func (s *server) apiRevokeToken(w http.ResponseWriter, r *http.Request) {
	err := readJSON(w, r, &struct{}{})
	var token tokenstore.Token
	if err == nil {
		token, err = s.TokenKeeper.Revoke(r.Context(), r.PathValue("name"), whoAsks(r, viaAPI))
	}
	switch {
	case errors.Is(err, tokenstore.ErrNotFound):
		s.answer(w, r, &refusal{http.StatusNotFound, "There is no such token."})
	case err != nil:
		s.answer(w, r, err)
	default:
		writeJSON(w, http.StatusOK, token)
	}
}
