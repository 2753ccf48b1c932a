package parts

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/forge-scheduler/forge/internal/devcluster"
)

const (
	// adminToken is that of the API server's administrator.
	adminToken = "admin"
	// apiServerTimeout bounds the start of the API server, requestTimeout each request.
	apiServerTimeout = 2 * time.Minute
	requestTimeout   = 10 * time.Second
	readyInterval    = 100 * time.Millisecond
)

// Kubernetes is the API server of Kubernetes with its etcd, and nothing that would run pods.
type Kubernetes struct {
	Etcd, API *Daemon

	dir    string
	url    string
	client *http.Client
}

// StartKubernetes starts the program of an API server, with its files in dir.
func StartKubernetes(ctx context.Context, dir, apiServer string) (*Kubernetes, error) {
	etcd, err := Program("etcd", "apt-get install etcd-server")
	if err != nil {
		return nil, err
	}
	var free [3]string
	for i := range free {
		if free[i], err = devcluster.FindPort("127.0.0.1"); err != nil {
			return nil, err
		}
	}
	key := filepath.Join(dir, "accounts.pem")
	tokens := filepath.Join(dir, "tokens.csv")
	if err := errors.Join(writeKey(key), os.WriteFile(tokens, []byte(adminToken+",admin,1,system:masters\n"), 0o600)); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(free[2])
	if err != nil {
		return nil, err
	}
	clients, peers := "http://"+free[0], "http://"+free[1]
	k := &Kubernetes{dir: dir, url: "https://" + free[2]}
	k.Etcd = newDaemon(dir, "etcd", []string{
		etcd, "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers,
	})
	k.API = newDaemon(dir, "apiserver", []string{
		apiServer, "--etcd-servers", clients, "--bind-address", host, "--secure-port", port, "--cert-dir", filepath.Join(dir, "certificates"),
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--token-auth-file", tokens, "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/24",
		"--endpoint-reconciler-type", "none", "--advertise-address", host,
	})
	if err := errors.Join(k.Etcd.Start(ctx), k.API.Start(ctx)); err != nil {
		return nil, err
	}
	if err := k.await(ctx); err != nil {
		k.Stop()
		return nil, err
	}
	return k, nil
}

// Stop ends both programs.
func (k *Kubernetes) Stop() {
	k.API.Kill()
	k.Etcd.Kill()
}

// await waits until the API server is ready.
func (k *Kubernetes) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiServerTimeout)
	defer cancel()
	for {
		err := k.trust()
		if err == nil {
			var status int
			if status, _, err = k.Do(ctx, http.MethodGet, "/readyz", "", nil); err == nil && status == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready: %w", errors.Join(ctx.Err(), err))
		case <-time.After(readyInterval):
		}
	}
}

func (k *Kubernetes) authority() string { return filepath.Join(k.dir, "certificates", "apiserver.crt") }

// trust makes the client trust the certificate that the API server has made for itself.
func (k *Kubernetes) trust() error {
	text, err := os.ReadFile(k.authority())
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("%s has no certificate", k.authority())
	}
	k.client = &http.Client{Timeout: requestTimeout, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	return nil
}

// Do sends a request as the administrator.
func (k *Kubernetes) Do(ctx context.Context, method, path, contentType string, body []byte) (status int, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, k.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	request.Header.Set("Content-Type", contentType)
	response, err := k.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}

// Kubeconfig writes a kubeconfig for a service account, with a token that the API server issues.
func (k *Kubernetes) Kubeconfig(ctx context.Context, namespace, account string) (path string, err error) {
	status, answer, err := k.Do(ctx, http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", "application/json",
		[]byte(`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}`))
	if err != nil {
		return "", err
	}
	var issued struct{ Status struct{ Token string } }
	if err := json.Unmarshal(answer, &issued); err != nil || issued.Status.Token == "" {
		return "", fmt.Errorf("no token for %s: %d, %s, %w", account, status, answer, err)
	}
	path = filepath.Join(k.dir, account+".kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: test, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: test, namespace: %q}}]
current-context: test
`, k.url, k.authority(), issued.Status.Token, namespace)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// writeKey writes a new key, with which the API server signs the tokens of service accounts.
func writeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
