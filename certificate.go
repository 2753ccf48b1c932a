package forge

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateEvery is how often the files of a certificate are looked at, if
// anybody connects.
const certificateEvery = time.Second

// certificate is what the listener shows, read again when its files change. Files
// that do not fit together, as while they are being replaced, change nothing.
type certificate struct {
	certFile, keyFile string
	logger            *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	seen   [2]fileMark
	looked time.Time
	// failed is the error that was logged last.
	failed string
}

// fileMark changes when a file does.
type fileMark struct {
	size    int64
	changed time.Time
}

func newCertificate(certFile, keyFile string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, logger: logger}
	seen := c.marks()
	if err := c.read(seen); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *certificate) marks() (marks [2]fileMark) {
	for i, path := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(path); err == nil {
			marks[i] = fileMark{info.Size(), info.ModTime()}
		}
	}
	return marks
}

func (c *certificate) read(seen [2]fileMark) error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("read http.tls_cert_file %s and http.tls_key_file %s: %w", c.certFile, c.keyFile, err)
	}
	c.pair, c.seen, c.failed = &pair, seen, ""
	return nil
}

// get answers a handshake.
func (c *certificate) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= certificateEvery {
		c.looked = now
		c.renew(hello.Context())
	}
	return c.pair, nil
}

// renew keeps the certificate that it has when there is no better one.
func (c *certificate) renew(ctx context.Context) {
	seen := c.marks()
	if seen == c.seen {
		return
	}
	err := c.read(seen)
	switch {
	case err == nil:
		c.logger.InfoContext(ctx, "new certificate", "not_after", c.pair.Leaf.NotAfter)
	case err.Error() != c.failed:
		c.failed = err.Error()
		c.logger.ErrorContext(ctx, "the certificate cannot be renewed; the old one stays", "error", err)
	}
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}
