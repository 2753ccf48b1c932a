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

// certificateInterval is how often the certificate's files are checked for changes, if
// clients connect.
const certificateInterval = time.Second

// certificate is the listener's TLS certificate. It is reloaded when its files change.
// Files that do not match, for instance while they are being replaced, are ignored.
type certificate struct {
	certFile, keyFile string
	logger            *slog.Logger

	mu           sync.Mutex
	pair         *tls.Certificate
	loadedStamps [2]fileStamp
	checkedAt    time.Time
	// lastError is the last logged error.
	lastError string
}

// fileStamp detects changes of a file.
type fileStamp struct {
	size    int64
	changed time.Time
}

func newCertificate(certFile, keyFile string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, logger: logger}
	seen := c.fileStamps()
	if err := c.read(seen); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *certificate) fileStamps() (stamps [2]fileStamp) {
	for i, path := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(path); err == nil {
			stamps[i] = fileStamp{info.Size(), info.ModTime()}
		}
	}
	return stamps
}

func (c *certificate) read(seen [2]fileStamp) error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("read http.tls_cert_file %s and http.tls_key_file %s: %w", c.certFile, c.keyFile, err)
	}
	c.pair, c.loadedStamps, c.lastError = &pair, seen, ""
	return nil
}

// get returns the certificate for a TLS handshake.
func (c *certificate) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checkedAt) >= certificateInterval {
		c.checkedAt = now
		c.renew(hello.Context())
	}
	return c.pair, nil
}

// renew reloads the certificate if its files have changed, and keeps the old one on error.
func (c *certificate) renew(ctx context.Context) {
	seen := c.fileStamps()
	if seen == c.loadedStamps {
		return
	}
	err := c.read(seen)
	switch {
	case err == nil:
		c.logger.InfoContext(ctx, "new certificate", "not_after", c.pair.Leaf.NotAfter)
	case err.Error() != c.lastError:
		c.lastError = err.Error()
		c.logger.ErrorContext(ctx, "could not reload the certificate, keeping the old one", "error", err)
	}
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}
