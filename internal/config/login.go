package config

import (
	"fmt"
	"maps"
	"net/netip"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// OIDC is a provider with which users log in to the pages.
type OIDC struct {
	Issuer       string `toml:"issuer,omitempty"`
	ClientID     string `toml:"client_id,omitempty"`
	ClientSecret string `toml:"client_secret,omitempty" refs:"yes"`
	// RedirectURL is where the provider sends a user back to: the address of the pages
	// with CallbackPath.
	RedirectURL string   `toml:"redirect_url,omitempty"`
	Scopes      []string `toml:"scopes,omitempty"`
	// GroupsClaim is the claim with the user's groups. Dots lead into objects.
	GroupsClaim string `toml:"groups_claim,omitempty"`
}

// CallbackPath is the path of every RedirectURL.
const CallbackPath = "/login/oidc/callback"

// Enabled says whether users can log in with a provider.
func (o OIDC) Enabled() bool { return o.Issuer != "" }

// Origin returns the scheme and host of the pages, as the user's browser sees them.
func (o OIDC) Origin() string { return strings.TrimSuffix(o.RedirectURL, CallbackPath) }

// ProxyAuth names users by headers of a proxy.
type ProxyAuth struct {
	UserHeader   string `toml:"user_header,omitempty"`
	GroupsHeader string `toml:"groups_header,omitempty"`
	// TrustedProxies are the ranges of addresses whose headers are believed.
	TrustedProxies []string `toml:"trusted_proxies,omitempty"`
}

// Enabled says whether a proxy names users.
func (p ProxyAuth) Enabled() bool { return p.UserHeader != "" }

// Ranges are TrustedProxies as ranges.
func (p ProxyAuth) Ranges() []netip.Prefix { return ranges(p.TrustedProxies) }

const (
	oidcSection  = "dashboard.oidc"
	proxySection = "dashboard.proxy_auth"
	clientSecret = oidcSection + ".client_secret"
	// maxGroupName is the most bytes of a group's name.
	maxGroupName = 200
)

// checkLogin looks at how users log in.
func (l *loader) checkLogin() {
	l.checkGroups()
	l.checkOIDC()
	l.checkProxyAuth()
}

func (l *loader) checkGroups() {
	const path = "dashboard.groups"
	for _, name := range slices.Sorted(maps.Keys(l.cfg.Dashboard.Groups)) {
		if name == "" || len(name) > maxGroupName || strings.ContainsFunc(name, unicode.IsControl) {
			l.wrongKey(join(path, name), "not the name of a group", fmt.Sprintf("1 to %d bytes without control characters", maxGroupName))
		}
	}
}

// usersNeed reports what users need besides their own section, at the key that turns it on.
func (l *loader) usersNeed(path string) {
	switch d := l.cfg.Dashboard; {
	case !l.ok(path):
	case !d.ByToken() && l.ok("dashboard.auth"):
		l.wrong(path, "everybody may use the listener without logging in", "", `auth = "token" in [dashboard]`)
	case len(d.Groups) == 0 && l.ok("dashboard.groups"):
		l.wrong(path, "no group of users has a scope", "", `[dashboard.groups] with lines such as platform-team = "admin"`)
	}
}

func (l *loader) checkOIDC() {
	o := l.cfg.Dashboard.OIDC
	issuer, client, redirect := oidcSection+".issuer", oidcSection+".client_id", oidcSection+".redirect_url"
	if !o.Enabled() {
		l.needs(issuer, "a client of no provider", "issuer beside it", map[string]bool{
			client: o.ClientID != "", clientSecret: o.ClientSecret != "", redirect: o.RedirectURL != "",
		})
		return
	}
	l.usersNeed(issuer)
	l.checkSecureURL(issuer, o.Issuer, "")
	if o.ClientID == "" && l.ok(client) {
		l.wrong(issuer, "no client_id", "", "client_id as the provider has it")
	}
	if o.RedirectURL == "" && l.ok(redirect) {
		l.wrong(issuer, "no redirect_url", "", `redirect_url = "https://HOST`+CallbackPath+`"`)
	}
	l.checkSecureURL(redirect, o.RedirectURL, CallbackPath)
	if _, referred := l.cfg.secrets.references[clientSecret]; o.ClientSecret != "" && !referred && l.given[clientSecret] == "" && l.has(clientSecret) {
		l.warn(clientSecret, "a secret in the file", "${env:NAME} or ${file:PATH} in its place")
	}
	if scopes := oidcSection + ".scopes"; l.ok(scopes) && !slices.Contains(o.Scopes, "openid") {
		l.wrong(scopes, "without openid there is no login", "["+strings.Join(quotedAll(o.Scopes), ", ")+"]", `"openid" among them`)
	}
	for i, scope := range o.Scopes {
		if path := l.elementPath(oidcSection+".scopes", i); l.ok(path) && !printable.MatchString(scope) {
			l.wrong(path, "not a scope of a provider", strconv.Quote(clip(scope)), "a word without spaces")
		}
	}
	if claim := oidcSection + ".groups_claim"; l.ok(claim) && o.GroupsClaim == "" {
		l.wrong(claim, "empty", `""`, `a claim such as "groups"`)
	}
}

// needs reports the first of the given keys, which mean nothing without another one.
func (l *loader) needs(other, message, want string, given map[string]bool) {
	for _, path := range slices.Sorted(maps.Keys(given)) {
		if given[path] && l.ok(other) && l.ok(path) {
			l.wrong(path, message, "", want)
			return
		}
	}
}

// checkSecureURL wants https, unless the host is this machine. An empty path allows any.
func (l *loader) checkSecureURL(key, text, path string) {
	if text == "" || !l.ok(key) {
		return
	}
	got, want := strconv.Quote(clip(redactAddress(text))), "https://HOST"+path
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "http" && u.Scheme != "https":
		l.wrong(key, "not a URL", got, want)
	case u.Scheme == "http" && !localHost(u.Hostname()):
		l.wrong(key, "not encrypted", got, "https://")
	case path != "" && u.EscapedPath() != path:
		l.wrong(key, "another path than the pages have", got, want)
	}
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// ownHeaders are headers with another meaning.
var ownHeaders = []string{"Authorization", "Cookie", "Host", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"}

func (l *loader) checkProxyAuth() {
	p := l.cfg.Dashboard.ProxyAuth
	user, groups, trusted := proxySection+".user_header", proxySection+".groups_header", proxySection+".trusted_proxies"
	if !p.Enabled() {
		l.needs(user, "no header names the user", `user_header such as "X-Forwarded-User" beside it`, map[string]bool{
			groups: p.GroupsHeader != "", trusted: len(p.TrustedProxies) > 0,
		})
		return
	}
	l.usersNeed(user)
	l.checkHeader(user, p.UserHeader)
	l.checkHeader(groups, p.GroupsHeader)
	switch {
	case p.GroupsHeader == "" && l.ok(groups):
		l.wrong(user, "no header names the user's groups", "", `groups_header such as "X-Forwarded-Groups" beside it`)
	case strings.EqualFold(p.UserHeader, p.GroupsHeader):
		l.wrong(groups, "the same header as user_header", strconv.Quote(p.GroupsHeader), "another header")
	}
	if len(p.TrustedProxies) == 0 && l.ok(trusted) {
		l.wrong(user, "no proxy is trusted to name users", "", `trusted_proxies with the proxy's addresses, such as ["10.0.0.7/32"]`)
	}
	for i, given := range p.TrustedProxies {
		if r, err := netip.ParsePrefix(given); err == nil && r.Bits() == 0 {
			l.wrong(l.elementPath(trusted, i), "every address could name itself any user", strconv.Quote(given), "the proxy's own addresses")
		}
	}
}

func (l *loader) checkHeader(path, name string) {
	switch {
	case name == "" || !l.ok(path):
	case !headerName.MatchString(name):
		l.wrong(path, "not the name of a header", strconv.Quote(clip(name)), `a name such as "X-Forwarded-User"`)
	case slices.Contains(ownHeaders, textproto.CanonicalMIMEHeaderKey(name)):
		l.wrong(path, "a header with another meaning", strconv.Quote(name), `a header of the proxy's own, such as "X-Forwarded-User"`)
	}
}
