package cluster

import (
	"cmp"
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
	// Create returns access.ErrTaken or ErrOpen, Revoke access.ErrNotFound.
	Create(ctx context.Context, wanted access.NewToken) (secret string, token access.Token, err error)
	Revoke(ctx context.Context, name, by string) (access.Token, error)
}

// NewToken checks the description of a token. An empty scope or expiry selects the default.
func NewToken(name, scope, expires, by string) (wanted access.NewToken, err error) {
	var wrong []web.FieldError
	note := func(field string, err error) {
		if err != nil {
			wrong = append(wrong, web.FieldError{Pointer: "#" + web.PointerTo(field), Detail: err.Error(), Whole: field + ": " + err.Error()})
		}
	}
	wanted = access.NewToken{Name: name, By: by}
	note("name", access.CheckName(name))
	wanted.Scope, err = access.ParseScope(cmp.Or(scope, string(access.Viewer)))
	note("scope", err)
	wanted.Life, err = access.ParseLife(cmp.Or(expires, access.DefaultLife))
	note("expires", err)
	return wanted, web.WrongFields(wrong...)
}

// CreateToken creates a token and returns its secret, which cannot be read later.
func (s *Cluster) CreateToken(ctx context.Context, wanted access.NewToken) (secret string, token access.Token, err error) {
	secret, token, err = s.TokenKeeper.Create(ctx, wanted)
	switch {
	case errors.Is(err, access.ErrTaken):
		err = web.Refuse(http.StatusConflict, fmt.Sprintf("A token %q exists. Choose another name, or revoke it first.", wanted.Name))
	case err == nil:
		auth.NoteAction(ctx, fmt.Sprintf("%s, %s", token.Name, token.Scope))
	}
	return secret, token, err
}
