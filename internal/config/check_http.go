package config

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
)

// Local says whether only this machine can reach the listener.
func (h HTTP) Local() bool {
	host, _, err := net.SplitHostPort(h.Listen)
	return err == nil && localHost(host)
}

// isOpen says whether others reach the listener and need no token.
func (c *Config) isOpen() bool { return !c.HTTP.Local() && !c.Dashboard.ByToken() }

// RequireAuth returns an error if others reach the listener and need no token, which loading a file
// reports. A program may have set http.listen since.
func (c *Config) RequireAuth() error {
	if !c.isOpen() {
		return nil
	}
	return fmt.Errorf("http.listen = %q is not a loopback address, and there is no authentication; "+
		`want auth = "token" in [dashboard], or an address such as "127.0.0.1:8080"`, c.HTTP.Listen)
}

// ByTLS says whether the listener speaks TLS.
func (h HTTP) ByTLS() bool { return h.TLSCertFile != "" && h.TLSKeyFile != "" }

func (l *loader) checkHTTP() {
	l.checkListen()
	l.checkTLS()
	l.checkAllowedHosts()
}

func (l *loader) checkListen() {
	const path = "http.listen"
	if !l.ok(path) {
		return
	}
	listen := l.cfg.HTTP.Listen
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		l.wrong(path, "not an address to listen on", strconv.Quote(clip(listen)), `HOST:PORT such as "127.0.0.1:8080"`)
		return
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		l.wrong(path, "not a port", strconv.Quote(clip(port)), "0 to 65535; 0 is any free one")
	}
	switch {
	case l.cfg.HTTP.Local() || !l.ok("dashboard.auth"):
	case l.cfg.isOpen():
		l.wrong(path, "not a loopback address, and there is no authentication", strconv.Quote(clip(listen)),
			fmt.Sprintf(`auth = "token" in [dashboard], or "127.0.0.1:%s"`, port))
	case !l.cfg.HTTP.ByTLS():
		l.warn(path, "tokens travel unencrypted to an address that others can reach",
			"tls_cert_file and tls_key_file in [http], or a network that you trust up to a proxy that speaks TLS")
	}
}

// checkTLS leaves the files alone: only the node itself need be able to read them.
func (l *loader) checkTLS() {
	const cert, key = "http.tls_cert_file", "http.tls_key_file"
	if !l.ok(cert) || !l.ok(key) {
		return
	}
	switch h := l.cfg.HTTP; {
	case h.TLSCertFile != "" && h.TLSKeyFile == "":
		l.wrong(cert, "a certificate without its key", strconv.Quote(clip(h.TLSCertFile)), "tls_key_file beside it")
	case h.TLSKeyFile != "" && h.TLSCertFile == "":
		l.wrong(key, "a key without its certificate", strconv.Quote(clip(h.TLSKeyFile)), "tls_cert_file beside it")
	}
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// checkAllowedHosts wants names as they stand in an address, without a port.
func (l *loader) checkAllowedHosts() {
	for i, host := range l.cfg.HTTP.AllowedHosts {
		path := fmt.Sprintf("http.allowed_hosts[%d]", i)
		if !l.ok(path) {
			continue
		}
		if _, err := netip.ParseAddr(host); err != nil && !hostName.MatchString(host) {
			l.wrong(path, "not the name of a host", strconv.Quote(clip(host)), `a name such as "forge.example.com", without a port`)
		}
	}
}
