package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/tokenstore"
)

// File is the node's own forge.toml, as far as it is the cluster's.
type File interface {
	// Plan says what the file would change against what is in force, and which runs
	// of a stretch of time from now would appear and vanish.
	Plan(ctx context.Context, ahead time.Duration) (cronstore.Plan, error)
	// Apply puts the file in force, also one that was superseded.
	Apply(ctx context.Context) (cronstore.Outcome, error)
}

// TokenKeeper makes tokens and ends them.
type TokenKeeper interface {
	List(ctx context.Context) ([]tokenstore.Token, error)
	// Create returns tokenstore.ErrTaken, Revoke tokenstore.ErrNotFound.
	Create(ctx context.Context, wanted tokenstore.New) (secret string, token tokenstore.Token, err error)
	Revoke(ctx context.Context, name, by string) (tokenstore.Token, error)
}

const (
	defaultDays = 7
	maxDays     = 366
	// maxNext is the most ticks that are foreseen at once.
	maxNext = 1000
)

// fileRoutes are about the node's file and the cluster's tokens.
func (s *server) fileRoutes() (routes []route) {
	if s.File != nil {
		routes = append(routes,
			route{path: "/api/v1/plan", get: s.apiPlan, read: viewer, gets: answers[cronstore.Plan]("Say what the node's file would change against what is in force", whole("days", "How many days of runs to compare, from 1 to 366; 7 without."))},
			route{path: "/api/v1/apply", post: s.apiApply, write: admin, posts: keyless(does[cronstore.Outcome](http.StatusOK, "Put the node's file in force, also to go back to an earlier one"))})
	}
	if s.TokenKeeper != nil {
		routes = append(routes,
			route{
				path: "/api/v1/tokens", get: s.apiTokens, read: admin, gets: lists[tokenstore.Token]("List the tokens, without their secrets"),
				post: s.apiCreateToken, write: admin, posts: keyless(takes[tokenAsk, madeToken](http.StatusCreated, "Make a token and show it, this once")), action: "token.create",
			},
			route{path: "/api/v1/tokens/{name}/revoke", post: s.apiRevokeToken, write: admin, posts: does[tokenstore.Token](http.StatusOK, "End a token and its sessions")})
	}
	return routes
}

// keyless is for an answer that is not kept.
func keyless(o *operation) *operation {
	o.keyless = true
	return o
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

func (s *server) apiApply(w http.ResponseWriter, r *http.Request) {
	if err := readJSON(w, r, &struct{}{}); err != nil {
		s.answer(w, r, err)
		return
	}
	outcome, err := s.File.Apply(r.Context())
	if err != nil {
		s.answer(w, r, err)
		return
	}
	noteDown(r.Context(), "configuration "+outcome.InForce)
	writeJSON(w, http.StatusOK, outcome)
}

// apiNext foresees the ticks of a cron.
func (s *server) apiNext(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	from, count := q.time("from"), q.upTo("limit", coming, maxNext)
	if q.reject(w) {
		return
	}
	cron, ok := s.cronOf(w, r)
	if !ok {
		return
	}
	if from.IsZero() {
		from = s.Now()
	}
	ticks, err := explain.Next(cron.Name, cron.Spec, from, count)
	if err != nil {
		s.answer(w, r, &refusal{http.StatusConflict, "The schedule is of another version of forge: " + err.Error() + "."})
		return
	}
	writeJSON(w, http.StatusOK, listOf(ticks, ""))
}

// tokenAsk is a token as programs ask for it.
type tokenAsk struct {
	Name    string `json:"name"`
	Scope   string `json:"scope"`
	Expires string `json:"expires"`
}

// madeToken is a new token with its secret.
type madeToken struct {
	tokenstore.Token
	Secret string `json:"token"`
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
