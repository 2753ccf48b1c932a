package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/test/nodes"
)

// buildDex builds dex, which is in a module of its own, once a run.
var buildDex = sync.OnceValues(func() (string, error) {
	path := filepath.Join(builds, "dex")
	cmd := exec.Command("go", "build", "-ldflags=-w", "-o", path, ".")
	cmd.Dir, cmd.Env = "../dex", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build dex: %w\n%s", err, out)
	}
	return path, nil
})

// idLife is how long dex's ID tokens are valid.
const idLife = 3 * time.Second

// provider is a running dex.
type provider struct {
	t        *testing.T
	listen   string
	redirect string
	p        *process
}

func startDex(t *testing.T, redirect string) *provider {
	t.Helper()
	d := &provider{t: t, listen: nodes.FreeAddress(t), redirect: redirect}
	d.start()
	return d
}

func (d *provider) issuer() string { return "http://" + d.listen + "/dex" }

func (d *provider) start() {
	d.t.Helper()
	program, err := buildDex()
	if err != nil {
		d.t.Fatal(err)
	}
	d.p = launchProgram(d.t, program, nil, "-listen", d.listen, "-redirect", d.redirect, "-life", idLife.String())
	eventually(d.t, "dex listens", func() bool { return strings.Contains(d.p.output.String(), "issuer="+d.issuer()) })
}

func (d *provider) kill() { d.p.Kill() }

// set changes the user's groups, or ends the user's sessions.
func (d *provider) set(ended bool, groups ...string) {
	d.t.Helper()
	body, err := json.Marshal(map[string]any{"Groups": groups, "Ended": ended})
	if err != nil {
		d.t.Fatal(err)
	}
	answer, err := http.Post("http://"+d.listen+"/identity", "application/json", bytes.NewReader(body))
	if err != nil || answer.StatusCode != http.StatusOK {
		d.t.Fatalf("change the user: %v, %v", answer, err)
	}
	_ = answer.Body.Close()
}

// front is the proxy through which browsers reach the nodes.
type front struct {
	*httptest.Server

	// node is the address of the node for all requests, callback of the one for the
	// provider's answers.
	node, callback atomic.Value
}

func newFront(t *testing.T) *front {
	t.Helper()
	f := &front{}
	f.Server = httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to := f.node.Load().(string)
		if r.In.URL.Path == config.CallbackPath {
			to = f.callback.Load().(string)
		}
		r.SetURL(&url.URL{Scheme: "http", Host: to})
		r.Out.Host = r.In.Host
	}})
	t.Cleanup(f.Close)
	return f
}

// browser keeps cookies and follows redirects.
type browser struct {
	t *testing.T
	http.Client
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t: t, Client: http.Client{Jar: jar, Timeout: time.Minute}}
}

// webPage is an answer that has been read.
type webPage struct {
	status int
	url    *url.URL
	header http.Header
	body   string
}

func (b *browser) get(address string) webPage {
	b.t.Helper()
	return b.send(http.MethodGet, address, nil)
}

func (b *browser) post(address string, form url.Values) webPage {
	b.t.Helper()
	return b.send(http.MethodPost, address, form)
}

func (b *browser) send(method, address string, form url.Values) webPage {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := b.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return webPage{answer.StatusCode, answer.Request.URL, answer.Header, string(body)}
}

// caller is who a node says that the browser is.
type caller struct {
	Name, Scope, Subject, Groups string
	Token                        bool
}

// whoami returns the status, too: 401 without a session.
func (b *browser) whoami(node string) (who caller, status int) {
	b.t.Helper()
	p := b.get("http://" + node + "/api/v1/whoami")
	if p.status == http.StatusOK {
		if err := json.Unmarshal([]byte(p.body), &who); err != nil {
			b.t.Fatalf("%v: %s", err, p.body)
		}
	}
	return who, p.status
}
