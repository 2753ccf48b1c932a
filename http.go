package forge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/dashboard"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// A browser's event stream never ends by itself, so the goodbye is short.
const (
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	closeTimeout      = 500 * time.Millisecond
)

// openListener also reads the certificate, if there is to be one.
func (n *Node) openListener() (net.Listener, error) {
	listener, err := net.Listen("tcp", n.cfg.HTTP.Listen) //nolint:noctx // returns at once
	if err != nil {
		return nil, fmt.Errorf("%w; choose another address with http.listen or --listen", err)
	}
	if !n.cfg.HTTP.ByTLS() {
		return listener, nil
	}
	shown, err := newCertificate(n.cfg.HTTP.TLSCertFile, n.cfg.HTTP.TLSKeyFile, n.logger)
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return tls.NewListener(listener, shown.config()), nil
}

// urlOf is where others find the listener; one that listens on all addresses is
// found by the machine's name.
func (n *Node) urlOf(address net.Addr) string {
	scheme, hostport := "http://", address.String()
	if n.cfg.HTTP.ByTLS() {
		scheme = "https://"
	}
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() && n.self.Hostname != "" {
		hostport = net.JoinHostPort(n.self.Hostname, strconv.Itoa(tcp.Port))
	}
	return scheme + hostport
}

// listen serves pages, probes and documents until ctx ends.
func (n *Node) listen(ctx context.Context, listener net.Listener) error {
	serving, stopStreams := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStreams()
	server := newServer(serving, n.handler(serving))
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	stopStreams()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		_ = server.Close() // whoever is still connected is cut off
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

// newServer bounds how long anybody may take to say what they want. There is no bound
// for an answer: an event stream is one; and a body has its own.
func newServer(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
}

func (n *Node) handler(ctx context.Context) http.Handler {
	operator := n.operator()
	return dashboard.New(dashboard.Options{
		Lifetime:    ctx,
		Tokens:      n.tokens(),
		Audit:       auditor{n.pool},
		Once:        onceKeeper{n.pool},
		File:        ownFile{n},
		Doctor:      n.examine,
		TokenKeeper: tokenReader{n.pool},
		Source:      n.source(),
		Holder:      operator,
		Runner:      operator,
		Changer:     operator,
		Enqueuer:    operator,
		Stopper:     operator,
		DeadChanger: operator,
		Mover:       operator,
		Silencer:    operator,
		Settings:    n.settings(),
		Self: dashboard.Self{
			Cluster: n.cfg.Cluster.Name, NodeID: n.cfg.Node.ID, Incarnation: n.incarnation,
			Version: n.opts.version, APIURL: n.self.APIURL,
		},
		Roles:          n.roleNames(),
		Ready:          n.ready,
		Leads:          func(role string) (leaderstore.Fence, bool) { return n.campaign.Leads(roles.Role(role)) },
		Describe:       describe,
		NoPages:        !n.cfg.Dashboard.Enabled,
		Applied:        n.appliedHash,
		Differs:        n.differs,
		Metrics:        n.metrics.Handler(),
		ClusterMetrics: aggregator.Handler(n.pool, n.metrics.Series(), n.logger),
		Changes:        n.changes,
		AllowedHosts:   n.allowedHosts(),
		Logger:         n.logger,
	})
}

// tokens is nil, as an interface, where nobody has to have one.
func (n *Node) tokens() dashboard.Tokens {
	if !n.cfg.Dashboard.ByToken() {
		return nil
	}
	return tokenReader{n.pool}
}

// allowedHosts are the names of the listener: those of loopback, and on a wider
// address also its own, the host's and those of its other addresses.
func (n *Node) allowedHosts() []string {
	hosts := append(dashboard.LoopbackHosts(), n.cfg.HTTP.AllowedHosts...)
	if !n.cfg.HTTP.Local() {
		hosts = append(hosts, dashboard.AnyAddress, n.self.Hostname)
	}
	if u, err := url.Parse(n.self.APIURL); err == nil {
		hosts = append(hosts, u.Hostname())
	}
	return hosts
}

// settings writes the configuration out once for all who ask: it can be long.
func (n *Node) settings() func() map[string]any {
	var mu sync.Mutex
	var of *Config
	var tree map[string]any
	return func() map[string]any {
		mu.Lock()
		defer mu.Unlock()
		if now := n.current.Load(); now != of {
			of, tree = now, now.Effective()
		}
		return tree
	}
}

// describe puts a cron's schedule into plain English.
func describe(cron cronstore.Cron) string {
	schedule, err := cron.Spec.Timing().Parse(cron.Name)
	if err != nil {
		return "" // of another version of forge
	}
	return schedule.Describe()
}
