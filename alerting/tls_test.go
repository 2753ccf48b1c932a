package alerting

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
)

// authority is a private certificate authority.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.key = newKey(t)
	a.cert = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, a.key)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign signs a certificate for a key; the first one of an authority is its own.
func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent := a.cert
	if parent == nil {
		parent = template
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// issue returns a certificate for a name, which is a host's or a client's.
func (a *authority) issue(name string) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if address := net.ParseIP(name); address != nil {
		template.IPAddresses = []net.IP{address}
	} else {
		template.DNSNames = []string{name}
	}
	cert := a.sign(template, key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// write writes the authority's certificate to a file.
func (a *authority) write(path string) string {
	a.t.Helper()
	writePEM(a.t, path, "CERTIFICATE", a.cert.Raw)
	return path
}

func writePEM(t *testing.T, path, kind string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writePair writes a certificate and its key.
func writePair(t *testing.T, certFile, keyFile string, pair tls.Certificate) {
	t.Helper()
	writePEM(t, certFile, "CERTIFICATE", pair.Certificate[0])
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, keyFile, "PRIVATE KEY", private)
}

// anyError stands for an alert that the server sends while the client writes: it may be lost.
const anyError = "any error"

// failsWith says whether an error has a text.
func failsWith(err error, text string) bool {
	return err != nil && (text == anyError || strings.Contains(err.Error(), text))
}

// serveTLS is a receiver that speaks TLS as settings say, and names the clients that it
// knows by their certificates.
func serveTLS(t *testing.T, settings *tls.Config) (address string, clients chan string) {
	t.Helper()
	clients = make(chan string, 16)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := ""
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		clients <- name
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "ok")
	}))
	server.TLS = settings
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, clients
}

// overTLS are receivers of each type that is reached over HTTP, with settings for TLS.
func overTLS(address string, settings config.NotifyTLS) map[string]config.Notify {
	receivers := everyHTTP(address)
	for name, receiver := range receivers {
		receiver.HTTPConfig.TLSConfig = settings
		receivers[name] = receiver
	}
	return receivers
}

func TestReceiversOverTLS(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), newAuthority(t)
	caFile, certFile, keyFile := ca.write(filepath.Join(dir, "ca.pem")), filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
	writePair(t, certFile, keyFile, ca.issue("forge-client"))
	here, elsewhere := ca.issue("127.0.0.1"), ca.issue("hooks.internal")
	plain := &tls.Config{Certificates: []tls.Certificate{here}}
	mutual := &tls.Config{Certificates: []tls.Certificate{here}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool()}
	for _, c := range []struct {
		name     string
		server   *tls.Config
		settings config.NotifyTLS
		client   string
		fails    string
	}{
		{"no CA", plain, config.NotifyTLS{}, "", "certificate signed by unknown authority"},
		{"the CA", plain, config.NotifyTLS{CAFile: caFile}, "", ""},
		{"no verification", plain, config.NotifyTLS{InsecureSkipVerify: true}, "", ""},
		{"another name", &tls.Config{Certificates: []tls.Certificate{elsewhere}}, config.NotifyTLS{CAFile: caFile}, "", "cannot validate certificate for 127.0.0.1"},
		{"the name", &tls.Config{Certificates: []tls.Certificate{elsewhere}}, config.NotifyTLS{CAFile: caFile, ServerName: "hooks.internal"}, "", ""},
		{"no client certificate", mutual, config.NotifyTLS{CAFile: caFile}, "", anyError},
		{"client certificate", mutual, config.NotifyTLS{CAFile: caFile, CertFile: certFile, KeyFile: keyFile}, "forge-client", ""},
		{"an old server", &tls.Config{Certificates: []tls.Certificate{here}, MaxVersion: tls.VersionTLS12}, config.NotifyTLS{CAFile: caFile, MinVersion: "TLS13"}, "", "protocol version"},
		{"no file any more", plain, config.NotifyTLS{CAFile: filepath.Join(dir, "gone.pem")}, "", "gone.pem: no such file"},
	} {
		address, clients := serveTLS(t, c.server)
		for target, settings := range overTLS(address, c.settings) {
			err := send(t, target, settings)
			switch {
			case c.fails != "" && (!failsWith(err, c.fails) || errors.Is(err, alerts.ErrRefused) || len(clients) > 0):
				t.Errorf("%s, %s: %v, want %s and another try", c.name, target, err, c.fails)
			case c.fails != "":
			case err != nil:
				t.Errorf("%s, %s: %v", c.name, target, err)
			default:
				if got := <-clients; got != c.client {
					t.Errorf("%s, %s: client %q, want %q", c.name, target, got, c.client)
				}
			}
		}
	}
}

// Files that are replaced are read again without a new configuration.
func TestReplacedTLSFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	dir, first, second := t.TempDir(), newAuthority(t), newAuthority(t)
	settings := config.NotifyTLS{CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "client.pem"), KeyFile: filepath.Join(dir, "client.key")}
	var server atomic.Pointer[tls.Config]
	serveBy := func(a *authority) {
		server.Store(&tls.Config{Certificates: []tls.Certificate{a.issue("127.0.0.1")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool()})
	}
	serveBy(first)
	address, clients := serveTLS(t, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return server.Load(), nil }})
	first.write(settings.CAFile)
	writePair(t, settings.CertFile, settings.KeyFile, first.issue("one"))
	receivers, err := New().NewReceivers(overTLS(address, settings), local, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := receivers.Send(t.Context(), "webhook", failure); err != nil || <-clients != "one" {
		t.Fatalf("before: %v", err)
	}
	serveBy(second)
	if err := receivers.Send(t.Context(), "webhook", failure); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Fatalf("with the files of the first authority: %v", err)
	}
	second.write(settings.CAFile)
	writePair(t, settings.CertFile, settings.KeyFile, second.issue("two"))
	if err := receivers.Send(t.Context(), "webhook", failure); err != nil {
		t.Fatalf("with those of the second: %v", err)
	}
	if got := <-clients; got != "two" {
		t.Errorf("client %q, want two", got)
	}
}

// sendMail sends to a mail server that is at another address than the settings say.
func sendMail(t *testing.T, settings config.Notify, address string) error {
	t.Helper()
	sender, err := New().NewReceivers(map[string]config.Notify{"mail": settings}, local, quiet)
	if err != nil {
		t.Fatal(err)
	}
	all := sender.(*receivers)
	made, err := all.notifier("mail", settings)
	if err != nil {
		t.Fatal(err)
	}
	made.(*mailer).dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return local.DialContext(ctx, network, address)
	}
	return all.Send(t.Context(), "mail", failure)
}

// secureMailServer takes one mail over TLS, from the start or after STARTTLS.
func secureMailServer(t *testing.T, settings *tls.Config, implicit bool) (address string, mails <-chan string) {
	t.Helper()
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	got := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		if implicit {
			conn, settings = tls.Server(conn, settings), nil
		}
		got <- converse(conn, settings)
	}()
	return listener.Addr().String(), got
}

// Mail servers are reached over TLS from the start at port 465, and with STARTTLS at
// every other.
func TestMailOverTLS(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), newAuthority(t)
	caFile, certFile, keyFile := ca.write(filepath.Join(dir, "ca.pem")), filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
	writePair(t, certFile, keyFile, ca.issue("forge-client"))
	mutual := func(host string) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{ca.issue(host)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool()}
	}
	plain := func(host string) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{ca.issue(host)}} }
	for _, c := range []struct {
		name     string
		server   *tls.Config
		settings config.NotifyTLS
		fails    string
	}{
		{"no CA", plain("mail.internal"), config.NotifyTLS{}, "certificate signed by unknown authority"},
		{"the CA", plain("mail.internal"), config.NotifyTLS{CAFile: caFile}, ""},
		{"no verification", plain("mail.internal"), config.NotifyTLS{InsecureSkipVerify: true}, ""},
		{"another name", plain("mx.internal"), config.NotifyTLS{CAFile: caFile}, "valid for mx.internal, not mail.internal"},
		{"the name", plain("mx.internal"), config.NotifyTLS{CAFile: caFile, ServerName: "mx.internal"}, ""},
		{"no client certificate", mutual("mail.internal"), config.NotifyTLS{CAFile: caFile}, anyError},
		{"client certificate", mutual("mail.internal"), config.NotifyTLS{CAFile: caFile, CertFile: certFile, KeyFile: keyFile}, ""},
		{"no file any more", plain("mail.internal"), config.NotifyTLS{CAFile: filepath.Join(dir, "gone.pem")}, "gone.pem: no such file"},
	} {
		for _, port := range []string{"465", "587"} {
			address, mails := secureMailServer(t, c.server, port == "465")
			err := sendMail(t, config.Notify{
				Type: "email", To: "ops@example.com", From: "forge@example.com", Smarthost: "mail.internal:" + port, RequireTLS: true, TLSConfig: c.settings,
			}, address)
			switch {
			case c.fails != "" && (!failsWith(err, c.fails) || errors.Is(err, alerts.ErrRefused)):
				t.Errorf("%s, port %s: %v, want %s and another try", c.name, port, err, c.fails)
			case c.fails == "" && err != nil:
				t.Errorf("%s, port %s: %v", c.name, port, err)
			case err == nil:
				if mail := <-mails; !strings.Contains(mail, "Subject: cron report failed") {
					t.Errorf("%s, port %s: got %s", c.name, port, mail)
				}
			}
		}
	}
}
