package config

import (
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// OnFailure is what follows a run that failed for good.
type OnFailure struct {
	// Notify lists receivers of [notify.NAME], with a place after a colon where
	// they have several: slack:#ops.
	Notify []string `toml:"notify"`
}

// Types of receivers.
const (
	NotifySlack     = "slack"
	NotifyPagerDuty = "pagerduty"
	NotifyWebhook   = "webhook"
	NotifyEmail     = "email"
)

// Notify is a receiver. The keys are Alertmanager's. The tag of says which types
// have a key (all, if there is none), need which of them must have it; a secret
// should be a reference and is never shown.
type Notify struct {
	Type string `toml:"type,omitempty" oneof:"slack|pagerduty|webhook|email"`
	// SendResolved also sends the occurrences of alerts that are resolved.
	SendResolved bool `toml:"send_resolved"`

	APIURL    string `toml:"api_url,omitempty" of:"slack" need:"slack" refs:"yes" secret:"yes"`
	Channel   string `toml:"channel,omitempty" of:"slack"`
	Username  string `toml:"username,omitempty" of:"slack"`
	IconEmoji string `toml:"icon_emoji,omitempty" of:"slack"`
	IconURL   string `toml:"icon_url,omitempty" of:"slack"`
	Color     string `toml:"color,omitempty" of:"slack"`
	Title     string `toml:"title,omitempty" of:"slack"`
	TitleLink string `toml:"title_link,omitempty" of:"slack"`

	RoutingKey  string `toml:"routing_key,omitempty" of:"pagerduty" need:"pagerduty" refs:"yes" secret:"yes"`
	Severity    string `toml:"severity,omitempty" of:"pagerduty" oneof:"critical|error|warning|info"`
	Description string `toml:"description,omitempty" of:"pagerduty"`
	Client      string `toml:"client,omitempty" of:"pagerduty"`
	ClientURL   string `toml:"client_url,omitempty" of:"pagerduty"`
	Class       string `toml:"class,omitempty" of:"pagerduty"`
	Component   string `toml:"component,omitempty" of:"pagerduty"`
	Group       string `toml:"group,omitempty" of:"pagerduty"`

	URL        string     `toml:"url,omitempty" of:"webhook|pagerduty" need:"webhook" refs:"yes"`
	HTTPConfig NotifyHTTP `toml:"http_config,omitempty" of:"slack|pagerduty|webhook"`

	To           string            `toml:"to,omitempty" of:"email" need:"email"`
	From         string            `toml:"from,omitempty" of:"email" need:"email"`
	Smarthost    string            `toml:"smarthost,omitempty" of:"email" need:"email"`
	Hello        string            `toml:"hello,omitempty" of:"email"`
	AuthUsername string            `toml:"auth_username,omitempty" of:"email" refs:"yes"`
	AuthPassword string            `toml:"auth_password,omitempty" of:"email" refs:"yes" secret:"yes"`
	AuthSecret   string            `toml:"auth_secret,omitempty" of:"email" refs:"yes" secret:"yes"`
	AuthIdentity string            `toml:"auth_identity,omitempty" of:"email"`
	RequireTLS   bool              `toml:"require_tls" of:"email"`
	TLSConfig    NotifyTLS         `toml:"tls_config,omitempty" of:"email"`
	Headers      map[string]string `toml:"headers,omitempty" of:"email"`
	HTML         string            `toml:"html,omitempty" of:"email"`
	Text         string            `toml:"text,omitempty" of:"slack|email"`
}

// NotifyHTTP is how a receiver is reached over HTTP.
type NotifyHTTP struct {
	Authorization NotifyAuthorization `toml:"authorization,omitempty"`
	BasicAuth     NotifyBasicAuth     `toml:"basic_auth,omitempty"`
	ProxyURL      string              `toml:"proxy_url,omitempty" refs:"yes"`
	TLSConfig     NotifyTLS           `toml:"tls_config,omitempty"`
}

// NotifyAuthorization is the header Authorization.
type NotifyAuthorization struct {
	Type        string `toml:"type,omitempty"`
	Credentials string `toml:"credentials,omitempty" refs:"yes" secret:"yes"`
}

// NotifyBasicAuth is a user and a password.
type NotifyBasicAuth struct {
	Username string `toml:"username,omitempty" refs:"yes"`
	Password string `toml:"password,omitempty" refs:"yes" secret:"yes"`
}

// NotifyTLS is how a receiver is reached over TLS. The keys are those of Prometheus'
// tls_config. Files are absolute, or relative to the directory of the configuration.
type NotifyTLS struct {
	CAFile             string `toml:"ca_file,omitempty"`
	CertFile           string `toml:"cert_file,omitempty"`
	KeyFile            string `toml:"key_file,omitempty"`
	ServerName         string `toml:"server_name,omitempty"`
	InsecureSkipVerify bool   `toml:"insecure_skip_verify,omitempty"`
	MinVersion         string `toml:"min_version,omitempty" oneof:"TLS10|TLS11|TLS12|TLS13"`
}

// Secrets are the values that nobody may be shown. Whoever knows a webhook's
// address may use it, so its path and its query are secrets, too. So are the passwords
// in addresses.
func (n Notify) Secrets() []string {
	var secrets []string
	for _, f := range notifySecrets() {
		if value := reflect.ValueOf(n).FieldByIndex(f.index).String(); value != "" {
			secrets = append(secrets, value)
		}
	}
	secrets = append(secrets, n.URL)
	for _, address := range []string{n.APIURL, n.URL} {
		if u, err := url.Parse(address); err == nil {
			secrets = append(secrets, u.RequestURI(), u.EscapedPath(), u.RawQuery)
			secrets = append(secrets, slices.Concat(slices.Collect(maps.Values(u.Query()))...)...)
		}
	}
	for _, address := range []string{n.APIURL, n.URL, n.HTTPConfig.ProxyURL} {
		if u, err := url.Parse(address); err == nil {
			password, _ := u.User.Password()
			secrets = append(secrets, password)
		}
	}
	return secrets
}

// notifySecrets lists the keys of a receiver that are secrets.
func notifySecrets() []key {
	return slices.DeleteFunc(scalars(reflect.TypeFor[Notify](), "", nil), func(k key) bool { return k.tag.Get("secret") == "" })
}

// notifySecret says whether a path is one of a receiver's secrets, or its
// address, or that of who watches for signs of life.
func notifySecret(path string) bool {
	if path == "metrics.deadman_url" {
		return true
	}
	rest, ok := strings.CutPrefix(path, "notify.")
	if !ok {
		return false
	}
	return strings.HasSuffix(rest, ".url") ||
		slices.ContainsFunc(notifySecrets(), func(k key) bool { return strings.HasSuffix(rest, "."+k.path) })
}
