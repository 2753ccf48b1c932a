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

const (
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	// What a request's handler does not bound itself: until it is reached, and after it.
	readTimeout  = 15 * time.Second
	writeTimeout = 2 * time.Minute
	maxHeader    = 32 << 10
	// requestDrain is how long requests that are under way may take when the node
	// stops. Streams end at once.
	requestDrain = 5 * time.Second
)

// openListener also reads the certificate, if there is to be one.
func (n *Node) openListener() (net.Listener, error) {
	listener, err := net.Listen("tcp", n.cfg.HTTP.Listen) //nolint:noctx // returns at once
	if err != nil {
		return nil, fmt.Errorf("%w; choose another address with http.listen or --listen", err)
	}
	listener = newConnections(listener, n.cfg.HTTP.MaxConnections, n.cfg.HTTP.MaxConnectionsPerAddress)
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
	handler := n.handler(serving)
	var recording sync.WaitGroup
	recording.Go(func() { handler.Run(serving) })
	defer func() { stopStreams(); recording.Wait() }()
	requests, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	server := newServer(requests, handler)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	stopStreams() // requests go on
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestDrain)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		cutOff()
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

// newServer bounds how long anybody may take to send a request and to read its answer.
// The handlers have bounds of their own, narrower ones and, for streams, none.
func newServer(ctx context.Context, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnState:         connectionChanged,
		ConnContext:       withConnection,
		IdleTimeout:       idleTimeout,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
}

func (n *Node) handler(ctx context.Context) *dashboard.Handler {
	operator := n.operator()
	return dashboard.New(dashboard.Options{
		Lifetime:    ctx,
		Tokens:      n.tokens(),
		Audit:       auditor{n.pool},
		Once:        onceKeeper{n.pool},
		File:        ownFile{n},
		Doctor:      n.examine,
		TokenKeeper: n.tokenKeeper(),
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
		ClusterMetrics: aggregator.Exposition(n.pool, n.metrics.Series()),
		Changes:        n.changes,
		AllowedHosts:   n.allowedHosts(),
		Concurrent:     n.cfg.Database.PoolSize / 2, // the other half is for the roles and the jobs
		Beyond:         beyondLimits,
		TrustedProxies: n.cfg.HTTP.ProxyRanges(),
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

// tokenKeeper makes tokens for those whom the listener knows.
func (n *Node) tokenKeeper() dashboard.TokenKeeper {
	if !n.cfg.Dashboard.ByToken() {
		return openKeeper{tokenReader{n.pool}}
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
