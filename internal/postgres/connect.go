package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// headStart is how long a server of an address may take to answer before the next one is also
// tried.
const headStart = 250 * time.Millisecond

// Connect connects to a server of an address that config.ValidateConnect accepts. It prefers
// earlier ones, and a server that does not answer delays the next one by headStart only: a frozen
// server accepts connections and says nothing.
func Connect(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	servers := separate(config)
	if len(servers) == 1 {
		return pgx.ConnectConfig(ctx, config)
	}
	ctx, cancel := context.WithCancel(ctx)
	race := connectRace{servers: servers, results: make(chan connectResult, len(servers))}
	defer race.close()
	defer cancel()
	return race.run(ctx)
}

// connectResult is the end of one attempt.
type connectResult struct {
	conn *pgx.Conn
	err  error
}

// connectRace is the attempts to connect to the servers of an address.
type connectRace struct {
	servers []*pgx.ConnConfig // not tried yet
	results chan connectResult
	pending int
}

// start begins an attempt to connect to the next server, if there is one.
func (r *connectRace) start(ctx context.Context) {
	if len(r.servers) == 0 {
		return
	}
	server := r.servers[0]
	r.servers = r.servers[1:]
	r.pending++
	go func() {
		conn, err := pgx.ConnectConfig(ctx, server)
		r.results <- connectResult{conn, err}
	}()
}

// run returns the first connection, or the errors of all servers.
func (r *connectRace) run(ctx context.Context) (*pgx.Conn, error) {
	var all []error
	next := time.NewTicker(headStart)
	defer next.Stop()
	for r.start(ctx); r.pending > 0; {
		select {
		case result := <-r.results:
			r.pending--
			if result.err == nil {
				return result.conn, nil
			}
			all = append(all, result.err)
			next.Reset(headStart)
			r.start(ctx)
		case <-next.C:
			r.start(ctx)
		}
	}
	return nil, errors.Join(all...)
}

// close waits for the attempts that are still in progress, and closes their connections.
func (r *connectRace) close() {
	for ; r.pending > 0; r.pending-- {
		if result := <-r.results; result.conn != nil {
			CloseNow(result.conn)
		}
	}
}

// separate returns a configuration for each server of an address. A server may have several
// attempts, with TLS and without.
func separate(config *pgx.ConnConfig) []*pgx.ConnConfig {
	attempts := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...)
	var servers []*pgx.ConnConfig
	for i, attempt := range attempts {
		if i > 0 && attempt.Host == attempts[i-1].Host && attempt.Port == attempts[i-1].Port {
			last := servers[len(servers)-1]
			last.Fallbacks = append(last.Fallbacks, attempt)
			continue
		}
		server := config.Copy()
		server.Host, server.Port, server.TLSConfig, server.Fallbacks = attempt.Host, attempt.Port, attempt.TLSConfig, nil
		servers = append(servers, server)
	}
	return servers
}
