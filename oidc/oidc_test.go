package oidc

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"
	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/access"
)

func TestLogin(t *testing.T) {
	t.Parallel()
	f := newFakeProvider(t)
	p := f.client()
	address, err := p.Begin(t.Context(), attempt)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	challenge := sha256.Sum256([]byte(attempt.Verifier))
	want := url.Values{
		"client_id": {"forge"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
		"nonce": {"the-nonce"}, "redirect_uri": {"https://forge.example.com/login/oidc/callback"}, "response_type": {"code"},
		"scope": {"openid email"}, "state": {"the-state"},
	}
	if diff := cmp.Diff(want, u.Query()); diff != "" || !strings.HasPrefix(address, f.URL+"/auth?") {
		t.Errorf("%s (-want +got):\n%s", address, diff)
	}
	login, err := p.Complete(t.Context(), attempt, "the-code")
	if err != nil {
		t.Fatal(err)
	}
	user := access.User{Issuer: f.URL, Subject: "42", Name: "ann@example.com", Groups: []string{"platform", "staff"}}
	if diff := cmp.Diff(user, login.User); diff != "" || login.ProviderSession != "session-1" || login.RefreshToken != "r2" || login.Valid.Round(time.Minute) != time.Hour {
		t.Errorf("%+v (-want +got):\n%s", login, diff)
	}
	if form := f.forms[0]; form.Get("code") != "the-code" || form.Get("code_verifier") != attempt.Verifier {
		t.Errorf("the request for tokens: %v", form)
	}
}

// An ID token is accepted only if it is for this login at this client.
func TestInvalidIDTokens(t *testing.T) {
	t.Parallel()
	set := func(name string, value any) func(*fakeProvider) {
		return func(f *fakeProvider) { f.claims[name] = value }
	}
	for name, change := range map[string]func(*fakeProvider){
		"nonce of another login": set("nonce", "another"),
		"no nonce":               set("nonce", nil),
		"another audience":       set("aud", "someone-else"),
		"another party":          set("azp", "someone-else"),
		"another issuer":         set("iss", "https://evil.example.com"),
		"expired":                set("exp", time.Now().Add(-2*time.Minute).Unix()),
		"no expiry":              set("exp", nil),
		"not yet valid":          set("nbf", time.Now().Add(time.Hour).Unix()),
		"from the future":        set("iat", time.Now().Add(time.Hour).Unix()),
		"no subject":             set("sub", ""),
		"long subject":           set("sub", strings.Repeat("s", 300)),
		"subject for a terminal": set("sub", "a\x1b[2Jb"),
		"long name":              set("email", strings.Repeat("e", 300)),
		"huge claims":            set("groups", strings.Repeat("g", 100<<10)),
		"signed by another key": func(f *fakeProvider) {
			f.sign = func(c string) string { return oidctest.SignIDToken(f.other, "key-1", "RS256", c) }
		},
		"signed by no key":        func(f *fakeProvider) { f.sign = unsigned },
		"signed with the secret":  func(f *fakeProvider) { f.sign = signedWithSecret },
		"changed after signing":   func(f *fakeProvider) { f.sign = func(c string) string { return tampered(f.signed(c)) } },
		"no ID token":             func(f *fakeProvider) { f.answer = map[string]any{"id_token": nil} },
		"not a token":             func(f *fakeProvider) { f.sign = func(string) string { return "x.y.z" } },
		"another access token":    set("at_hash", "AAAAAAAAAAAAAAAAAAAAAA"),
		"a code that was refused": func(f *fakeProvider) { f.refuse = "invalid_grant" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeProvider(t)
			change(f)
			if login, err := f.client().Complete(t.Context(), attempt, "c"); !errors.Is(err, access.ErrInvalid) {
				t.Errorf("%+v, %v", login, err)
			} else if len(err.Error()) > 500 {
				t.Errorf("the error is long: %v", err)
			}
		})
	}
}

func unsigned(claims string) string {
	text := base64.RawURLEncoding.EncodeToString
	return text([]byte(`{"alg":"none"}`)) + "." + text([]byte(claims)) + "."
}

func signedWithSecret(claims string) string {
	text := base64.RawURLEncoding.EncodeToString
	token := text([]byte(`{"alg":"HS256"}`)) + "." + text([]byte(claims))
	sum := hmac.New(sha256.New, []byte("s"))
	_, _ = sum.Write([]byte(token))
	return token + "." + text(sum.Sum(nil))
}

func tampered(token string) string {
	parts := strings.Split(token, ".")
	claims, _ := base64.RawURLEncoding.DecodeString(parts[1])
	parts[1] = base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(claims), `"staff"`, `"admin"`, 1)))
	return strings.Join(parts, ".")
}

// Clocks may differ by a minute. The login holds for the token's life all the same.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-50 * time.Second, 50 * time.Second} {
		f := newFakeProvider(t)
		now := time.Now().Add(ahead)
		f.claims["iat"], f.claims["exp"] = now.Unix(), now.Add(30*time.Second).Unix()
		login, err := f.client().Complete(t.Context(), attempt, "c")
		if err != nil || login.Valid != 30*time.Second {
			t.Errorf("a clock that is ahead by %v: %v, %v", ahead, login.Valid, err)
		}
	}
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	f := newFakeProvider(t)
	p := f.client()
	before, err := p.Complete(t.Context(), attempt, "c")
	if err != nil {
		t.Fatal(err)
	}
	delete(f.claims, "nonce")
	delete(f.claims, "sid")
	f.claims["groups"] = "readers"
	now, err := p.Refresh(t.Context(), before)
	if err != nil || cmp.Diff([]string{"readers"}, now.Groups) != "" || now.ProviderSession != "session-1" {
		t.Errorf("%+v, %v", now, err)
	}
	f.answer = map[string]any{"id_token": nil, "refresh_token": "r3"}
	if now, err = p.Refresh(t.Context(), now); err != nil || now.RefreshToken != "r3" || now.Valid.Round(time.Minute) != time.Minute {
		t.Errorf("without an ID token: %+v, %v", now, err)
	}
	f.answer = nil
	f.claims["sub"] = "43"
	if _, err := p.Refresh(t.Context(), before); !errors.Is(err, access.ErrInvalid) {
		t.Errorf("another user: %v", err)
	}
	f.refuse = "invalid_grant"
	if _, err := p.Refresh(t.Context(), before); !errors.Is(err, access.ErrInvalid) {
		t.Errorf("a login that has ended: %v", err)
	}
	f.broken = true
	if _, err := p.Refresh(t.Context(), before); err == nil || errors.Is(err, access.ErrInvalid) {
		t.Errorf("a provider that does not answer: %v", err)
	}
}

// What a provider says about itself is limited, and it cannot lead the secret astray.
func TestHostileConfigurations(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]map[string]any{
		"another issuer": {"issuer": "https://evil.example.com"},
		"huge":           {"x": strings.Repeat("x", maxAnswer)},
		"no address":     {"token_endpoint": ""},
		"a script":       {"authorization_endpoint": "javascript:alert(1)"},
		"a file":         {"token_endpoint": "file:///etc/passwd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeProvider(t)
			f.more = more
			if err := f.client().Check(t.Context()); err == nil || len(err.Error()) > 500 {
				t.Errorf("%v", err)
			}
		})
	}
	f := newFakeProvider(t)
	f.more = map[string]any{"end_session_endpoint": "javascript:alert(1)"}
	if address := f.client().LogoutURL(t.Context(), "t"); address != "" {
		t.Errorf("logout leads to %s", address)
	}
}

func TestLogoutURL(t *testing.T) {
	t.Parallel()
	f := newFakeProvider(t)
	p := f.client()
	want := f.URL + "/end?client_id=forge&id_token_hint=t&post_logout_redirect_uri=https%3A%2F%2Fforge.example.com%2Flogin&x=1"
	if got := p.LogoutURL(t.Context(), "t"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := p.LogoutURL(t.Context(), strings.Repeat("t", maxHint+1)); strings.Contains(got, "hint") {
		t.Errorf("a long hint: %.100s", got)
	}
}

func TestLogoutTokens(t *testing.T) {
	t.Parallel()
	f := newFakeProvider(t)
	p := f.client()
	const event = `"events": {"http://schemas.openid.net/event/backchannel-logout": {}}`
	claims := func(more string) string {
		return `{"iss": "` + f.URL + `", "aud": "forge", "jti": "1", "iat": 1, "exp": 99999999999, ` + more + `}`
	}
	subject, session, err := p.EndedSession(t.Context(), f.signed(claims(event+`, "sub": "42", "sid": "s"`)))
	if err != nil || subject != "42" || session != "s" {
		t.Errorf("%q %q %v", subject, session, err)
	}
	for name, token := range map[string]string{
		"none": "", "no event": f.signed(claims(`"sub": "42"`)), "an ID token": f.signed(claims(event + `, "sub": "42", "nonce": "n"`)),
		"nobody": f.signed(claims(event)), "unsigned": unsigned(claims(event + `, "sub": "42"`)),
		"another client": f.signed(strings.Replace(claims(event+`, "sub": "42"`), `"forge"`, `"x"`, 1)),
		"long":           strings.Repeat("x", maxIDToken+1),
	} {
		if _, _, err := p.EndedSession(t.Context(), token); !errors.Is(err, access.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The configuration is read once an hour for logins, once a minute for the login page, and
// once in a few seconds while it cannot be read.
func TestConfigurationIsCached(t *testing.T) {
	t.Parallel()
	f := newFakeProvider(t)
	p := f.client()
	now := time.Now()
	p.now = func() time.Time { return now }
	check := func(after time.Duration, ok bool, reads int) {
		t.Helper()
		now = now.Add(after)
		if err := p.Check(t.Context()); (err == nil) != ok || f.reads != reads {
			t.Errorf("%v, read %d times, want %d", err, f.reads, reads)
		}
	}
	check(0, true, 1)
	check(checkedFor/2, true, 1)
	check(checkedFor, true, 2)
	f.broken = true
	check(2*checkedFor, false, 2)
	if _, err := p.Begin(t.Context(), attempt); err != nil {
		t.Errorf("what is known is used: %v", err)
	}
	f.broken = false
	check(0, false, 2)
	check(retryAfter, true, 3)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	now = now.Add(2 * checkedFor)
	if err := p.Check(gone); err == nil {
		t.Error("a request that was given up succeeds")
	}
	check(0, true, 4) // whoever gave up says nothing about the provider
	if _, err := p.Refresh(gone, access.Login{}); err == nil {
		t.Error("a request that was given up succeeds")
	}
	check(0, true, 5) // something was wrong with the provider
}

func TestGroups(t *testing.T) {
	t.Parallel()
	claims := map[string]any{
		"groups": []any{"a", 1, "b"}, "role": "admin", "a.b": []any{"dotted"},
		"realm_access": map[string]any{"roles": []any{"r"}, "deep": map[string]any{"er": "x"}},
	}
	for name, want := range map[string][]string{
		"groups": {"a", "b"}, "role": {"admin"}, "realm_access.roles": {"r"}, "realm_access.deep.er": {"x"}, "a.b": {"dotted"},
		"none": nil, "groups.x": nil, "realm_access": nil, "realm_access.none": nil,
	} {
		if diff := cmp.Diff(want, groupsOf(claims, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for want, claims := range map[string]map[string]any{
		"ann@example.com": {"email": "ann@example.com", "name": "Ann"},
		"ann":             {"email": "boss@example.com", "email_verified": false, "preferred_username": "ann"},
		"Ann":             {"name": "Ann"}, "": {"email": 1},
	} {
		if got := nameOf(claims); got != want {
			t.Errorf("%v: %q, want %q", claims, got, want)
		}
	}
}
