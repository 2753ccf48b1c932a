package oidc

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc/oidctest"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/config"
)

// fakeProvider answers as a provider, with whatever claims a test wants.
type fakeProvider struct {
	*httptest.Server

	key, other *rsa.PrivateKey

	mu sync.Mutex
	// claims are those of the next ID tokens.
	claims map[string]any
	// sign signs the next ID tokens.
	sign func(claims string) string
	// more are further fields of the configuration, answer those of the answer for tokens.
	more, answer map[string]any
	// refuse is the error code with which requests for tokens are refused.
	refuse string
	// broken makes every request fail.
	broken bool
	// forms are the requests for tokens, reads how often the configuration was read.
	forms []url.Values
	reads int
}

// keys are made once: making one is slow.
var keys = sync.OnceValue(func() (pair [2]*rsa.PrivateKey) {
	for i := range pair {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		pair[i] = key
	}
	return pair
})

func newFakeProvider(t *testing.T) *fakeProvider {
	t.Helper()
	pair := keys()
	f := &fakeProvider{key: pair[0], other: pair[1]}
	f.sign = f.signed
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", f.discovery)
	mux.HandleFunc("/keys", f.keySet)
	mux.HandleFunc("/token", f.token)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.broken {
			http.Error(w, "broken", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	f.claims = f.good()
	return f
}

// good returns the claims of a valid ID token for the attempt of the tests.
func (f *fakeProvider) good() map[string]any {
	now := time.Now()
	return map[string]any{
		"iss": f.URL, "sub": "42", "aud": "forge", "nonce": attempt.Nonce, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"email": "ann@example.com", "groups": []string{"platform", "staff"}, "sid": "session-1",
	}
}

func (f *fakeProvider) signed(claims string) string {
	return oidctest.SignIDToken(f.key, "key-1", "RS256", claims)
}

func (f *fakeProvider) discovery(w http.ResponseWriter, _ *http.Request) {
	f.reads++
	found := map[string]any{
		"issuer": f.URL, "authorization_endpoint": f.URL + "/auth", "token_endpoint": f.URL + "/token", "jwks_uri": f.URL + "/keys",
		"id_token_signing_alg_values_supported": []string{"none", "HS256", "RS256"}, "end_session_endpoint": f.URL + "/end?x=1",
	}
	maps.Copy(found, f.more)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found)
}

func (f *fakeProvider) keySet(w http.ResponseWriter, _ *http.Request) {
	text := base64.RawURLEncoding.EncodeToString
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "key-1",
		"n": text(f.key.N.Bytes()), "e": text(big.NewInt(int64(f.key.E)).Bytes()),
	}}})
}

func (f *fakeProvider) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	f.forms = append(f.forms, r.PostForm)
	w.Header().Set("Content-Type", "application/json")
	if f.refuse != "" {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"error": %q}`, f.refuse)
		return
	}
	claims, _ := json.Marshal(f.claims)
	answer := map[string]any{"access_token": "a", "token_type": "Bearer", "expires_in": 60, "refresh_token": "r2", "id_token": f.sign(string(claims))}
	maps.Copy(answer, f.answer)
	_ = json.NewEncoder(w).Encode(answer)
}

// attempt is the login of the tests.
var attempt = access.LoginAttempt{State: "the-state", Nonce: "the-nonce", Verifier: "the-verifier-the-verifier-the-verifier-the-ver", Next: "/"}

// client returns a provider of the fake one.
func (f *fakeProvider) client() *provider {
	return newProvider(config.OIDC{
		Issuer: f.URL, ClientID: "forge", ClientSecret: "s", RedirectURL: "https://forge.example.com" + config.CallbackPath,
		Scopes: []string{"openid", "email"}, GroupsClaim: "groups",
	}, time.Now)
}
