package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/nodes"
)

// trusting asks over TLS, with a connection of its own each time.
func trusting(t *testing.T, pool *x509.CertPool, address, token, path string) (status int, url string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, ""
	}
	_ = response.Body.Close()
	return response.StatusCode, response.Request.URL.Path
}

var listensOn = regexp.MustCompile(`url=https://\S+:(\d+)`)

// A node on every address asks for tokens, speaks TLS, and takes a new certificate
// without a restart.
func TestTokensOverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	trusted := nodes.WriteCertificate(t, certFile, keyFile, 1)
	c := newCluster(t, fmt.Sprintf("[http]\nlisten = \"0.0.0.0:0\"\ntls_cert_file = %q\ntls_key_file = %q\n[dashboard]\nauth = \"token\"\n", certFile, keyFile))
	env := []string{"FORGE_DATABASE_URL=" + c.url}
	p := launch(t, env, "serve", "--config", c.config, "--node-id", "a")
	c.nodes["a"] = p
	var address string
	eventually(t, "the node says where it listens", func() bool {
		found := listensOn.FindStringSubmatch(p.output.String())
		if found != nil {
			address = "127.0.0.1:" + found[1]
		}
		return found != nil
	})
	eventually(t, "probes need no token", func() bool {
		status, _ := trusting(t, trusted, address, "", "/readyz")
		return status == http.StatusOK
	})
	stdout, stderr, code := c.forge("token", "create", "me", "--scope", "viewer")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	token := strings.TrimSpace(stdout)
	for _, ask := range []struct {
		token, path string
		want        int
		at          string
	}{
		{"", "/metrics", 401, "/metrics"},
		{"", "/jobs", 200, "/login"},
		{token, "/metrics", 200, "/metrics"},
		{token, "/jobs", 200, "/jobs"},
		{token[:len(token)-1] + "!", "/api/v1/jobs", 401, "/api/v1/jobs"},
	} {
		if status, at := trusting(t, trusted, address, ask.token, ask.path); status != ask.want || at != ask.at {
			t.Errorf("%s: %d at %s, want %d at %s", ask.path, status, at, ask.want, ask.at)
		}
	}
	if _, stderr, code := c.forge("token", "revoke", "me"); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if status, _ := trusting(t, trusted, address, token, "/metrics"); status != 401 {
		t.Errorf("with a token that was revoked: %d", status)
	}
	if n := c.number(`SELECT count(*) FROM forge_audit WHERE actor = 'anonymous' AND source = '127.0.0.1' AND action = 'read' AND object = '/metrics' AND outcome = 'refused'`); n != 2 {
		t.Errorf("%d refusals are written down", n)
	}
	renewed := nodes.WriteCertificate(t, certFile, keyFile, 1)
	eventually(t, "the new certificate is shown", func() bool {
		status, _ := trusting(t, renewed, address, "", "/healthz")
		return status == http.StatusOK
	})
	if status, _ := trusting(t, trusted, address, "", "/healthz"); status != 0 {
		t.Error("the old certificate is shown still")
	}
	eventually(t, "the log says so", func() bool { return strings.Contains(p.output.String(), "new certificate") })
}

func TestEveryAddressRequiresToken(t *testing.T) {
	t.Parallel()
	_, stderr, code := forgeWith(t, nil, "serve", "--listen", "0.0.0.0:0")
	if want := `not a loopback address, and there is no authentication (got "0.0.0.0:0"); want auth = "token" in [dashboard], or "127.0.0.1:0"`; code != 3 || !strings.Contains(stderr, want) {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
