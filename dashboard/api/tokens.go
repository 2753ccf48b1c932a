package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

// TokenKeeper creates and revokes tokens.
type TokenKeeper interface {
	List(ctx context.Context) ([]access.Token, error)
	// Create returns tokenstore.ErrTaken or ErrOpen, Revoke tokenstore.ErrNotFound.
	Create(ctx context.Context, wanted access.NewToken) (secret string, token access.Token, err error)
	Revoke(ctx context.Context, name, by string) (access.Token, error)
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
	var wrong []web.FieldError
	note := func(field string, err error) {
		if err != nil {
			wrong = append(wrong, web.FieldError{Pointer: "#" + web.PointerTo(field), Detail: err.Error(), Whole: field + ": " + err.Error()})
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
	return wanted, web.WrongFields(wrong...)
}

func (s *API) apiTokens(w http.ResponseWriter, r *http.Request) {
	tokens, err := s.TokenKeeper.List(r.Context())
	answerList(s, w, r, tokens, err)
}

func (s *API) apiCreateToken(w http.ResponseWriter, r *http.Request) {
	var asked tokenAsk
	err := web.ReadJSON(w, r, &asked)
	var wanted access.NewToken
	if err == nil {
		wanted, err = asked.wanted(auth.RequestOrigin(r, viaAPI))
	}
	if err != nil {
		s.AnswerError(w, r, err)
		return
	}
	secret, token, err := s.TokenKeeper.Create(r.Context(), wanted)
	switch {
	case errors.Is(err, access.ErrTaken):
		s.AnswerError(w, r, web.Refuse(http.StatusConflict, fmt.Sprintf("A token %q exists. Choose another name, or revoke it first.", wanted.Name)))
	case errors.Is(err, access.ErrOpen):
		s.AnswerError(w, r, web.Refuse(http.StatusConflict, `Tokens can be created over HTTP only with auth = "token". Use forge token create on a machine that reaches the database.`))
	case err != nil:
		s.AnswerError(w, r, err)
	default:
		auth.NoteAction(r.Context(), fmt.Sprintf("%s, %s", token.Name, token.Scope))
		web.WriteJSON(w, http.StatusCreated, madeToken{token, secret})
	}
}

func (s *API) apiRevokeToken(w http.ResponseWriter, r *http.Request) {
	err := web.ReadJSON(w, r, &struct{}{})
	var token access.Token
	if err == nil {
		token, err = s.TokenKeeper.Revoke(r.Context(), r.PathValue("name"), auth.RequestOrigin(r, viaAPI))
	}
	switch {
	case errors.Is(err, access.ErrNotFound):
		s.AnswerError(w, r, web.Refuse(http.StatusNotFound, "There is no such token."))
	case err != nil:
		s.AnswerError(w, r, err)
	default:
		web.WriteJSON(w, http.StatusOK, token)
	}
}
