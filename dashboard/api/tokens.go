package api

import (
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

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

func (s *API) tokenRoutes() []route.Route {
	if s.TokenKeeper == nil {
		return nil
	}
	tokens := byAdmin(get(s, "/api/v1/tokens", route.Operation{
		ID: "listTokens", Summary: "List the tokens, without their secrets",
		About: "Returns the tokens with their scope, their expiry and their last use. The list is complete.",
		Query: []route.Parameter{filterParameter("state:active expires:<7d", access.FilterTable.Keys()), sortParameter(access.Orders)},
	}, filtered(s, access.FilterTable, access.Orders, s.TokenKeeper.List)))
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

// reader is the caller of a request as the API describes it.
type reader struct {
	// Name is the name of the token, or "user:" and the name of a user; "anonymous" if this
	// node requires no token.
	Name  string       `json:"name"`
	Scope access.Scope `json:"scope"`
	// Token reports that the caller has a token.
	Token bool `json:"token"`
	// Subject and Issuer identify a user: at the provider, or at a trusted proxy.
	Subject string `json:"subject,omitempty"`
	Issuer  string `json:"issuer,omitempty"`
	// Groups are the groups that give the user's scope.
	Groups string `json:"groups,omitempty"`
}

func (s *API) readerRoute() route.Route {
	return get(s, "/api/v1/whoami", route.Operation{
		ID: "getCaller", Summary: "The caller and its scope",
		About: "Returns the name and the scope of the token or the user of the request. If the node requires no token, the caller is anonymous and may do everything but create tokens.",
	}, func(r *http.Request, _ *web.Query) (reader, error) {
		if s.Tokens == nil {
			return reader{Name: auth.Anonymous, Scope: access.Admin}, nil
		}
		caller := auth.CallerOf(r.Context())
		return reader{
			Name: caller.Name, Scope: caller.Scope, Token: !caller.IsUser(),
			Subject: caller.Subject, Issuer: caller.Issuer, Groups: caller.Groups,
		}, nil
	})
}

func (s *API) createToken(c *call, body tokenAsk) (made madeToken, err error) {
	wanted, err := cluster.NewToken(body.Name, body.Scope, body.Expires, c.by)
	if err == nil {
		made.Secret, made.Token, err = s.CreateToken(c.Context(), wanted)
	}
	return made, err
}
