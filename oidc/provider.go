package oidc

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	client "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/internal/config"
)

const (
	// freshFor is how long the provider's configuration is used without reading it again.
	freshFor = time.Hour
	// checkedFor is how long Check trusts what it has read.
	checkedFor = time.Minute
	// retryAfter is how long a failure to read it is remembered.
	retryAfter = 3 * time.Second
)

// Engine connects to providers.
type Engine struct{}

// New returns the engine for forge.WithOIDC.
func New() Engine { return Engine{} }

// NewProvider returns the provider of a configuration. It sends no request.
func (Engine) NewProvider(cfg config.OIDC) auth.Provider { return newProvider(cfg, time.Now) }

// provider is a provider of OpenID Connect.
type provider struct {
	cfg    config.OIDC
	now    func() time.Time
	client *http.Client

	reading sync.Mutex // held while the configuration is read

	mu     sync.Mutex
	known  *discovered
	failed error
	at     time.Time // when known or failed was read
}

// discovered is the provider's configuration.
type discovered struct {
	*client.Provider
	oauth2.Config

	endSession string
	at         time.Time
}

func newProvider(cfg config.OIDC, now func() time.Time) *provider {
	return &provider{cfg: cfg, now: now, client: newClient()}
}

// Issuer returns the provider's address.
func (p *provider) Issuer() string { return p.cfg.Issuer }

// Origin returns the scheme and host of the pages, to which the provider leads back.
func (p *provider) Origin() string { return p.cfg.Origin() }

// Check returns why nobody can log in at the provider now, or nil.
func (p *provider) Check(ctx context.Context) error {
	_, err := p.discover(ctx, checkedFor)
	return err
}

// discover returns the provider's configuration, which is at most as old as given unless the
// provider does not answer.
func (p *provider) discover(ctx context.Context, within time.Duration) (*discovered, error) {
	if known, failed, ok := p.remembered(within); ok {
		return known, failed
	}
	p.reading.Lock()
	defer p.reading.Unlock()
	if known, failed, ok := p.remembered(within); ok { // read meanwhile
		return known, failed
	}
	found, err := p.read(ctx)
	if ctx.Err() != nil && err != nil {
		return nil, err // says nothing about the provider
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed, p.at = err, p.now()
	if err == nil {
		p.known = found
	}
	return found, err
}

// remembered returns the configuration or the failure that was read last; ok is false if it
// has to be read again.
func (p *provider) remembered(within time.Duration) (known *discovered, failed error, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch now := p.now(); {
	case p.known != nil && now.Sub(p.known.at) < within:
		return p.known, nil, true
	case p.failed != nil && now.Sub(p.at) < retryAfter:
		return nil, p.failed, true
	}
	return nil, nil, false
}

// doubt makes Check read the configuration again, because the provider did not answer.
func (p *provider) doubt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if stale := p.now().Add(-checkedFor); p.known != nil && p.known.at.After(stale) {
		doubted := *p.known
		doubted.at = stale
		p.known = &doubted
	}
}

// read requests the provider's configuration.
func (p *provider) read(ctx context.Context) (*discovered, error) {
	found, err := client.NewProvider(client.ClientContext(ctx, p.client), p.cfg.Issuer)
	if err != nil {
		return nil, fmt.Errorf("read the provider's configuration: %w", clipped{err})
	}
	var more struct {
		EndSession string   `json:"end_session_endpoint"`
		Methods    []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := found.Claims(&more); err != nil {
		return nil, fmt.Errorf("read the provider's configuration: %w", clipped{err})
	}
	endpoint := found.Endpoint()
	for _, address := range []string{endpoint.AuthURL, endpoint.TokenURL} {
		if !p.allowed(address) {
			return nil, fmt.Errorf("read the provider's configuration: %q is not an address with %s://", clip(address), schemeOf(p.cfg.Issuer))
		}
	}
	if !p.allowed(more.EndSession) {
		more.EndSession = ""
	}
	endpoint.AuthStyle = oauth2.AuthStyleInHeader
	basic := len(more.Methods) == 0 || slices.Contains(more.Methods, "client_secret_basic")
	if p.cfg.ClientSecret == "" || !basic {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &discovered{
		Provider: found, endSession: more.EndSession, at: p.now(),
		Config: oauth2.Config{
			ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, Endpoint: endpoint,
			RedirectURL: p.cfg.RedirectURL, Scopes: p.cfg.Scopes,
		},
	}, nil
}

// allowed reports whether an address has the issuer's scheme, or a safer one.
func (p *provider) allowed(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == schemeOf(p.cfg.Issuer))
}

func schemeOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "https"
	}
	return u.Scheme
}

// LogoutURL returns the address that ends the session at the provider and then leads back to
// the login page. It is empty if the provider has none, or cannot say so now.
func (p *provider) LogoutURL(ctx context.Context, idToken string) string {
	known, err := p.discover(ctx, freshFor)
	if err != nil || known.endSession == "" {
		return ""
	}
	u, err := url.Parse(known.endSession)
	if err != nil {
		return ""
	}
	q := u.Query()
	q.Set("client_id", p.cfg.ClientID)
	q.Set("post_logout_redirect_uri", p.Origin()+"/login")
	if len(idToken) <= maxHint {
		q.Set("id_token_hint", idToken)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// maxHint is the length of an ID token from which it is left out of an address, because
// servers refuse long addresses.
const maxHint = 4 << 10
