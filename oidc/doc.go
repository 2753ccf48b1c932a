// Package oidc lets users log in to the pages with a provider of OpenID Connect. A program
// that embeds forge passes it to the node; a program that does not import it compiles no
// client of OpenID Connect:
//
//	node, err := forge.New(cfg, forge.WithOIDC(oidc.New()))
//
// A login is an authorization code flow with PKCE. The browser keeps state, nonce and
// verifier of a login in a cookie, so any node can complete a login that another node has
// begun. The ID token must be signed by a key of the provider, for this client and with the
// nonce of the login. Its groups give the user's scope.
//
// A login holds as long as the ID token does. Before it ends, the refresh token, if the
// provider gives one, gets another ID token, with the user's present groups. If the provider
// refuses, the login ends.
//
// The provider's configuration is read when it is first needed, and again for the login page
// once it is a minute old. Each request to the provider is limited in time and size.
package oidc
