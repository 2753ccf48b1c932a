package postgres

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// answerTime is how long a server may take to accept a connection and still be the first to be
// tried by others.
const answerTime = time.Second

// serverRecall lets each connection of a pool first try the server of an address that accepted the
// last one. Otherwise each would wait for an earlier server that does not answer, for
// connect_timeout.
type serverRecall struct {
	lookup pgconn.LookupFunc

	mu        sync.Mutex
	addresses map[string][]string // of the hosts
	server    string              // that accepted the last connection, as NetworkAddress has it; empty: none
	asked     time.Time           // when a connection first tried it since then
}

// recallServer installs a serverRecall.
func recallServer(config *pgx.ConnConfig) *serverRecall {
	r := &serverRecall{lookup: config.LookupFunc, addresses: map[string][]string{}}
	config.LookupFunc = r.resolve
	return r
}

func (r *serverRecall) resolve(ctx context.Context, host string) ([]string, error) {
	addresses, err := r.lookup(ctx, host)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addresses[host] = addresses
	return addresses, err
}

// accepted records to which server a connection leads.
func (r *serverRecall) accepted(conn *pgconn.PgConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server, r.asked = conn.Conn().RemoteAddr().String(), time.Time{}
}

// order puts the recalled server first, if it answers.
func (r *serverRecall) order(config *pgx.ConnConfig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.answers(time.Now()) || len(config.Fallbacks) == 0 {
		return
	}
	ordered := attempts(config)
	slices.SortStableFunc(ordered, func(a, b *pgconn.FallbackConfig) int { return r.rank(a) - r.rank(b) })
	first := ordered[0]
	config.Host, config.Port, config.TLSConfig, config.Fallbacks = first.Host, first.Port, first.TLSConfig, ordered[1:]
}

// answers reports whether a server is recalled and no connection has waited for it for long.
func (r *serverRecall) answers(now time.Time) bool {
	if r.asked.IsZero() {
		r.asked = now
	}
	return r.server != "" && now.Sub(r.asked) <= answerTime
}

// rank is 0 for an attempt at the recalled server, and 1 for others.
func (r *serverRecall) rank(attempt *pgconn.FallbackConfig) int {
	for _, host := range append(slices.Clone(r.addresses[attempt.Host]), attempt.Host) {
		if _, address := pgconn.NetworkAddress(host, attempt.Port); address == r.server {
			return 0
		}
	}
	return 1
}
