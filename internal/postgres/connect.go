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
// server accepts connections and says nothing. While it waits for such a server, it tries those
// again that have refused: one of them may be promoted in its place.
func Connect(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	servers := separate(config)
	if len(servers) == 1 {
		return pgx.ConnectConfig(ctx, config)
	}
	ctx, cancel := context.WithCancel(ctx)
	race := connectRace{servers: servers, errs: make([]error, len(servers)), results: make(chan connectResult, len(servers))}
	defer race.close()
	defer cancel()
	return race.run(ctx)
}

// connectResult is the end of one attempt.
type connectResult struct {
	server int
	first  bool // the first attempt to connect to this server
	conn   *pgx.Conn
	err    error
}

// connectRace is the attempts to connect to the servers of an address, one at a time for each.
type connectRace struct {
	servers []*pgx.ConnConfig
	untried int     // the first server that was not tried yet
	refused []int   // servers whose last attempt has failed, the longest ago first
	errs    []error // of the last attempts
	results chan connectResult
	pending int
	firsts  int // first attempts that have not ended
}

// start begins an attempt to connect to a server.
func (r *connectRace) start(ctx context.Context, server int, first bool) {
	r.pending++
	go func() {
		conn, err := pgx.ConnectConfig(ctx, r.servers[server])
		r.results <- connectResult{server, first, conn, err}
	}()
}

// startUntried begins an attempt to connect to the next server, if there is one.
func (r *connectRace) startUntried(ctx context.Context) bool {
	if r.untried == len(r.servers) {
		return false
	}
	r.start(ctx, r.untried, true)
	r.firsts++
	r.untried++
	return true
}

// run returns the first connection or, when no attempt is in progress, the errors of all servers.
func (r *connectRace) run(ctx context.Context) (*pgx.Conn, error) {
	next := time.NewTicker(headStart)
	defer next.Stop()
	for r.startUntried(ctx); r.pending > 0; {
		select {
		case result := <-r.results:
			r.pending--
			if result.first {
				r.firsts--
			}
			if result.err == nil {
				return result.conn, nil
			}
			r.errs[result.server], r.refused = result.err, append(r.refused, result.server)
			next.Reset(headStart)
			r.startUntried(ctx)
		case <-next.C:
			if !r.startUntried(ctx) && r.firsts > 0 && len(r.refused) > 0 {
				r.start(ctx, r.refused[0], false)
				r.refused = r.refused[1:]
			}
		}
	}
	return nil, errors.Join(r.errs...)
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
func separate(config *pgx.ConnConfig) (servers []*pgx.ConnConfig) {
	all := attempts(config)
	for first, end := 0, 0; first < len(all); first = end {
		for end < len(all) && all[end].Host == all[first].Host && all[end].Port == all[first].Port {
			end++
		}
		server := config.Copy()
		setAttempts(server, attempts(server)[first:end])
		servers = append(servers, server)
	}
	return servers
}

// attempts returns the attempts to connect, in their order.
func attempts(config *pgx.ConnConfig) []*pgconn.FallbackConfig {
	return append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...)
}

// setAttempts replaces the attempts by some of the configuration's own. With those of a copy, pgx
// would not find the client certificate.
func setAttempts(config *pgx.ConnConfig, attempts []*pgconn.FallbackConfig) {
	first := attempts[0]
	config.Host, config.Port, config.TLSConfig, config.Fallbacks = first.Host, first.Port, first.TLSConfig, attempts[1:]
}
