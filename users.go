package forge

import (
	"errors"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// OIDC connects to providers of OpenID Connect. oidc.New of the package
// github.com/forge-scheduler/forge/oidc returns it.
type OIDC interface {
	// NewProvider returns the provider of [dashboard.oidc]. It sends no request.
	NewProvider(cfg config.OIDC) auth.Provider
}

// WithOIDC lets users log in to the pages with the provider of [dashboard.oidc]:
//
//	forge.WithOIDC(oidc.New())
//
// Without it, a program that imports forge compiles no client of OpenID Connect. A file with
// a provider is then an error of New, unless dashboard.enabled is false.
func WithOIDC(engine OIDC) Option { return func(o *options) { o.oidc = engine } }

var errNoOIDC = errors.New("the configuration has [dashboard.oidc], and the program has no client of OpenID Connect: " +
	"pass forge.WithOIDC(oidc.New()) to forge.New")

// checkUsers returns the error of a provider that the program cannot use.
func (n *Node) checkUsers(cfg *Config) error {
	if cfg.Dashboard.Enabled && cfg.Dashboard.OIDC.Enabled() && n.opts.oidc == nil {
		return errNoOIDC
	}
	return nil
}

// users returns who may use the listener without a token.
func (n *Node) users() auth.Users {
	d := n.cfg.Dashboard
	users := auth.Users{Groups: access.GroupScopes{}, Proxy: auth.ProxyHeaders{
		User: d.ProxyAuth.UserHeader, Groups: d.ProxyAuth.GroupsHeader, Trusted: d.ProxyAuth.Ranges(),
	}}
	for group, scope := range d.Groups {
		users.Groups[group] = access.Scope(scope)
	}
	if d.OIDC.Enabled() && n.opts.oidc != nil {
		users.Provider = n.opts.oidc.NewProvider(d.OIDC)
		users.Sessions = access.NewUserSessions(postgres.RequestDB{Pool: n.pool})
	}
	return users
}
