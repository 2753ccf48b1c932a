package config

import (
	"bytes"
	"strings"
	"testing"
)

// users is a configuration with users of a provider.
const users = "[dashboard]\nauth = \"token\"\n[dashboard.groups]\n\"platform\" = \"admin\"\n"

var badLogin = []bad{
	{"a provider without the rest", "[dashboard.oidc]\nissuer = \"https://login.example.com\"\n", []string{
		`forge.toml:2:10: dashboard.oidc.issuer: everybody may use the listener without logging in; want auth = "token" in [dashboard]`,
		"forge.toml:2:10: dashboard.oidc.issuer: no client_id; want client_id as the provider has it",
		`forge.toml:2:10: dashboard.oidc.issuer: no redirect_url; want redirect_url = "https://HOST/login/oidc/callback"`,
	}},
	{"a provider without groups", "[dashboard]\nauth = \"token\"\n[dashboard.oidc]\nissuer = \"https://login.example.com\"\nclient_id = \"forge\"\nredirect_url = \"https://forge.example.com/login/oidc/callback\"\n", []string{
		`forge.toml:4:10: dashboard.oidc.issuer: no group of users has a scope; want [dashboard.groups] with lines such as platform-team = "admin"`,
	}},
	{"a provider without client", users + "[dashboard.oidc]\nissuer = \"https://login.example.com\"\nscopes = [\"profile\", \"a b\"]\ngroups_claim = \"\"\n", []string{
		"forge.toml:6:10: dashboard.oidc.issuer: no client_id; want client_id as the provider has it",
		`forge.toml:6:10: dashboard.oidc.issuer: no redirect_url; want redirect_url = "https://HOST/login/oidc/callback"`,
		`forge.toml:7:10: dashboard.oidc.scopes: without openid there is no login (got ["profile", "a b"]); want "openid" among them`,
		`forge.toml:7:22: dashboard.oidc.scopes[1]: not a scope of a provider (got "a b"); want a word without spaces`,
		`forge.toml:8:16: dashboard.oidc.groups_claim: empty (got ""); want a claim such as "groups"`,
	}},
	{"addresses of a provider", users + "[dashboard.oidc]\nissuer = \"http://login.example.com\"\nclient_id = \"forge\"\nclient_secret = \"written-here\"\nredirect_url = \"https://forge.example.com/oauth\"\n", []string{
		`forge.toml:6:10: dashboard.oidc.issuer: not encrypted (got "http://login.example.com"); want https://`,
		`forge.toml:8:17: warning: dashboard.oidc.client_secret: a secret in the file; want ${env:NAME} or ${file:PATH} in its place`,
		`forge.toml:9:16: dashboard.oidc.redirect_url: another path than the pages have (got "https://forge.example.com/oauth"); want https://HOST/login/oidc/callback`,
	}},
	{"no addresses", users + "[dashboard.oidc]\nissuer = \"login.example.com\"\nclient_id = \"forge\"\nredirect_url = \"https://u:hidden@h/login/oidc/callback\"\nscopes = [\"profile\"]\n", []string{
		`forge.toml:6:10: dashboard.oidc.issuer: not a URL (got "login.example.com"); want https://HOST`,
		`forge.toml:8:16: dashboard.oidc.redirect_url: not a URL (got "https://u:[redacted]@h/login/oidc/callback"); want https://HOST/login/oidc/callback`,
		`forge.toml:9:10: dashboard.oidc.scopes: without openid there is no login (got ["profile"]); want "openid" among them`,
	}},
	{"a client without provider", "[dashboard.oidc]\nclient_id = \"forge\"\ngroups = { a = \"admin\" }\nclient_secret_file = \"x\"\n", []string{
		`forge.toml:2:13: dashboard.oidc.client_id: a client of no provider; want issuer beside it`,
		`forge.toml:3:1: dashboard.oidc.groups: unknown key; want [dashboard.groups]`,
		`forge.toml:4:1: dashboard.oidc.client_secret_file: unknown key; want client_secret = "${file:PATH}"`,
	}},
	{"groups", "[dashboard.groups]\na = \"root\"\nb = 1\n\"\" = \"viewer\"\n", []string{
		`forge.toml:2:5: dashboard.groups.a: not a known value (got "root"); want "viewer", "operator" or "admin"`,
		`forge.toml:3:5: dashboard.groups.b: wrong type (got 1); want "viewer", "operator" or "admin"`,
		`forge.toml:4:1: dashboard.groups."": not the name of a group; want 1 to 200 bytes without control characters`,
	}},
	{"a proxy", users + "[dashboard.proxy_auth]\nuser_header = \"Authorization\"\ngroups_header = \"a b\"\ntrusted_proxies = [\"0.0.0.0/0\", \"10.0.0.7\"]\n", []string{
		`forge.toml:6:15: dashboard.proxy_auth.user_header: a header with another meaning (got "Authorization"); want a header of the proxy's own, such as "X-Forwarded-User"`,
		`forge.toml:7:17: dashboard.proxy_auth.groups_header: not the name of a header (got "a b"); want a name such as "X-Forwarded-User"`,
		`forge.toml:8:20: dashboard.proxy_auth.trusted_proxies[0]: every address could name itself any user (got "0.0.0.0/0"); want the proxy's own addresses`,
		`forge.toml:8:33: dashboard.proxy_auth.trusted_proxies[1]: not a range of addresses (got "10.0.0.7"); want a CIDR such as "10.1.0.0/16"`,
	}},
	{"a proxy without the rest", users + "[dashboard.proxy_auth]\nuser_header = \"X-User\"\n", []string{
		`forge.toml:6:15: dashboard.proxy_auth.user_header: no header names the user's groups; want groups_header such as "X-Forwarded-Groups" beside it`,
		`forge.toml:6:15: dashboard.proxy_auth.user_header: no proxy is trusted to name users; want trusted_proxies with the proxy's addresses, such as ["10.0.0.7/32"]`,
	}},
	{"half a proxy", users + "[dashboard.proxy_auth]\ngroups_header = \"X-Groups\"\n", []string{
		`forge.toml:6:17: dashboard.proxy_auth.groups_header: no header names the user; want user_header such as "X-Forwarded-User" beside it`,
	}},
}

// A client secret is not shown, wherever it comes from.
func TestClientSecretIsNotShown(t *testing.T) {
	t.Parallel()
	text := users + "[dashboard.oidc]\nissuer = \"https://login.example.com\"\nclient_id = \"forge\"\nredirect_url = \"https://forge.example.com/login/oidc/callback\"\n"
	for written, shown := range map[string]string{
		`client_secret = "h1dden-s3cret"`: `client_secret = "[redacted]"`,
		`client_secret = "${env:SECRET}"`: `client_secret = "${env:SECRET}"`,
		"":                                `client_secret = "[redacted]"`, // from FORGE_DASHBOARD_OIDC_CLIENT_SECRET
	} {
		env := []string{"SECRET=h1dden-s3cret"}
		if written == "" {
			env = append(env, "FORGE_DASHBOARD_OIDC_CLIENT_SECRET=h1dden-s3cret")
		}
		cfg, report, err := parseWith(text+written+"\n", env...)
		if err != nil {
			t.Fatalf("%v, %v", messages(report), err)
		}
		if cfg.Dashboard.OIDC.ClientSecret != "h1dden-s3cret" {
			t.Errorf("%q is read as %q", written, cfg.Dashboard.OIDC.ClientSecret)
		}
		var out bytes.Buffer
		if err := cfg.Show(&out); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "h1dden") || !strings.Contains(out.String(), shown) {
			t.Errorf("%q is shown as:\n%s", written, out.String())
		}
	}
}
