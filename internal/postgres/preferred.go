package postgres

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// answerTime is how long a connection to the preferred server may take. Until it succeeds, later
// connections then try the servers in the order of the address.
const answerTime = time.Second

// preferredServer is the server of a pool's address that accepted the last connection. The next
// one tries it first: otherwise each would wait, for connect_timeout, for an earlier server that
// does not answer.
type preferredServer struct {
	lookup pgconn.LookupFunc

	mu      sync.Mutex
	ips     map[string][]string // of the hosts of the address
	address string              // IP address and port; empty: no connection was accepted
	triedAt time.Time           // when a connection first tried it since the last was accepted
}

// newPreferredServer also lets the configuration resolve names by the preferredServer.
func newPreferredServer(config *pgx.ConnConfig) *preferredServer {
	p := &preferredServer{lookup: config.LookupFunc, ips: map[string][]string{}}
	config.LookupFunc = p.resolve
	return p
}

func (p *preferredServer) resolve(ctx context.Context, host string) ([]string, error) {
	ips, err := p.lookup(ctx, host)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ips[host] = ips
	return ips, err
}

// accepted records the server of a connection.
func (p *preferredServer) accepted(conn *pgconn.PgConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.address, p.triedAt = conn.Conn().RemoteAddr().String(), time.Time{}
}

// putFirst changes the order of the servers for a connection that begins now.
func (p *preferredServer) putFirst(config *pgx.ConnConfig, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.address == "" || len(config.Fallbacks) == 0 {
		return
	}
	if p.triedAt.IsZero() {
		p.triedAt = now
	}
	if now.Sub(p.triedAt) > answerTime {
		return
	}
	var first, others []*pgconn.FallbackConfig
	for _, attempt := range attempts(config) {
		if p.leads(attempt) {
			first = append(first, attempt)
		} else {
			others = append(others, attempt)
		}
	}
	setAttempts(config, append(first, others...))
}

// leads reports whether the attempt may lead to the preferred server.
func (p *preferredServer) leads(attempt *pgconn.FallbackConfig) bool {
	return slices.ContainsFunc(p.ips[attempt.Host], func(ip string) bool {
		_, address := pgconn.NetworkAddress(ip, attempt.Port)
		return address == p.address
	})
}
