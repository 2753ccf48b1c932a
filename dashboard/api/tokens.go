package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

// TokenKeeper creates and revokes tokens.
type TokenKeeper interface {
	List(ctx context.Context) ([]access.Token, error)
	// Create returns access.ErrTaken or ErrOpen, Revoke access.ErrNotFound.
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
	wanted.Scope, err = access.ParseScope(cmp.Or(a.Scope, string(access.Viewer)))
	note("scope", err)
	wanted.Life, err = access.ParseLife(cmp.Or(a.Expires, access.DefaultLife))
	note("expires", err)
	return wanted, web.WrongFields(wrong...)
}

func (s *API) tokenRoutes() []route.Route {
	if s.TokenKeeper == nil {
		return nil
	}
	tokens := byAdmin(list(s, "/api/v1/tokens", route.Operation{
		ID: "listTokens", Summary: "List the tokens, without their secrets",
		About: "Returns the tokens with their scope, their expiry and their last use. The list is complete.",
	}, s.TokenKeeper.List))
	created := post(s, tokens.Path, route.Operation{
		ID: "createToken", Summary: "Create a token and return its secret once", Secret: "token", Reply: route.Reply{Status: http.StatusCreated},
		About: "Creates a token and returns its secret, which is not shown again.",
	}, s.createToken)
	tokens.Post, tokens.Posts, tokens.Action = created.Post, created.Posts, "token.create"
	return []route.Route{tokens, byAdmin(post(s, "/api/v1/tokens/{name}/revoke", route.Operation{
		ID: "revokeToken", Summary: "Revoke a token and end its sessions", About: "Revokes the token. Its sessions end too.",
	}, func(c *call, _ nothing) (access.Token, error) {
		return s.TokenKeeper.Revoke(c.Context(), c.PathValue("name"), c.by)
	}))}
}

func (s *API) createToken(c *call, body tokenAsk) (made madeToken, err error) {
	wanted, err := body.wanted(c.by)
	if err != nil {
		return made, err
	}
	made.Secret, made.Token, err = s.TokenKeeper.Create(c.Context(), wanted)
	switch {
	case errors.Is(err, access.ErrTaken):
		err = web.Refuse(http.StatusConflict, fmt.Sprintf("A token %q exists. Choose another name, or revoke it first.", wanted.Name))
	case err == nil:
		auth.NoteAction(c.Context(), fmt.Sprintf("%s, %s", made.Name, made.Scope))
	}
	return made, err
}
