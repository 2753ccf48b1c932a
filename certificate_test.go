package forge

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/test/nodes"
)

func TestCertificateIsReloadedWhenFilesChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	nodes.WriteCertificate(t, certFile, keyFile, 1)
	var log bytes.Buffer
	c, err := newCertificate(certFile, keyFile, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	shows := func(serial int64, why string) {
		t.Helper()
		c.checkedAt = time.Time{} // as if the interval had passed
		pair, err := c.get(&tls.ClientHelloInfo{})
		if err != nil || pair.Leaf.SerialNumber.Int64() != serial {
			t.Errorf("%s: certificate %v, %v", why, pair.Leaf.SerialNumber, err)
		}
	}
	later := func(path string, hours int) { // a difference that any file system can represent
		t.Helper()
		at := time.Now().Add(time.Duration(hours) * time.Hour)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	shows(1, "at first")
	nodes.WriteCertificate(t, certFile, "", 2) // without its key
	later(certFile, 1)
	shows(1, "between the two files")
	shows(1, "still between them")
	if n := strings.Count(log.String(), "keeping the old one"); n != 1 {
		t.Errorf("the error was logged %d times: %s", n, &log)
	}
	nodes.WriteCertificate(t, certFile, keyFile, 3)
	later(certFile, 2)
	shows(3, "after both")
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	shows(3, "without a file")
	if _, err := newCertificate(certFile, keyFile, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "http.tls_key_file "+keyFile) {
		t.Errorf("a node without its key starts: %v", err)
	}
}

func TestTLSBelow12IsRejected(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	nodes.WriteCertificate(t, certFile, keyFile, 1)
	c, err := newCertificate(certFile, keyFile, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		near, far := net.Pipe()
		client := tls.Client(near, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version}) //nolint:gosec // the test checks that old versions fail
		served := make(chan error, 1)
		go func() {
			served <- tls.Server(far, c.config()).HandshakeContext(t.Context())
			_ = far.Close()
		}()
		err := client.HandshakeContext(t.Context())
		_ = near.Close()
		if serveErr := <-served; (err == nil && serveErr == nil) != want {
			t.Errorf("%s: client %v, server %v, want success %t", tls.VersionName(version), err, serveErr, want)
		}
	}
}
