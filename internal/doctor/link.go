package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// The configuration keys of the addresses.
const (
	poolURL   = "database.url"
	leaderURL = "database.leader_url"
)

const (
	// applicationName is the name of the doctor's own connections.
	applicationName = "forge-doctor"

	// pings is the number of timed round trips.
	pings = 10
	// brief is the idle_session_timeout of the probe, and probeTimeout the time within
	// which the server must end the session.
	brief        = 250 * time.Millisecond
	probeTimeout = 5 * time.Second
	// connectTimeout applies to addresses without a timeout.
	connectTimeout = 5 * time.Second
)

// tcp holds the TCP settings that an election's session requests of the server; times
// that stay short are the operating system's.
var tcp = map[string]string{
	"tcp_user_timeout": "0", "tcp_keepalives_idle": "0", "tcp_keepalives_interval": "0", "tcp_keepalives_count": "0",
}

const (
	clockSQL = `SELECT clock_timestamp()`

	// In seconds; 0 is off, as on Unix sockets.
	tcpSQL = `
SELECT max(setting::float8) FILTER (WHERE name = 'tcp_user_timeout') / 1000,
       max(setting::float8) FILTER (WHERE name = 'tcp_keepalives_idle')
       + max(setting::float8) FILTER (WHERE name = 'tcp_keepalives_interval')
       * max(setting::float8) FILTER (WHERE name = 'tcp_keepalives_count')
FROM pg_settings`
)

// dial connects as nodes do, or to any server if anyServer is true.
func dial(ctx context.Context, url string, anyServer bool) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err // holds no password
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // leaves no prepared statement in a pooler
	config.RuntimeParams["application_name"] = applicationName
	postgres.SetClientParams(&config.Config)
	config.ValidateConnect = postgres.RequireWritable
	if anyServer {
		config.ValidateConnect = nil
	}
	return pgx.ConnectConfig(ctx, config)
}

// probe connects with the address of key and describes the link.
func probe(ctx context.Context, key, url string) Link {
	link := Link{Key: key}
	conn, err := dial(ctx, url, false)
	if postgres.IsReadOnly(err) {
		link.ReadOnly = readOnlyRemedy(err, key, url)
		conn, err = dial(ctx, url, true)
	}
	if err == nil {
		defer postgres.CloseNow(conn)
		err = link.examine(ctx, conn)
	}
	if err != nil {
		link.Err, link.Remedy = errors.New(postgres.Reason(err)), remedy(err, key, url)
	}
	return link
}

func remedy(err error, key, url string) string {
	config, failed := pgx.ParseConfig(url)
	if failed != nil {
		return ""
	}
	return postgres.Remedy(err, key, config)
}

func readOnlyRemedy(err error, key, url string) string {
	config, failed := pgx.ParseConfig(url)
	if failed != nil { // it was parsed to connect
		return ""
	}
	return postgres.ReadOnlyRemedy(err, key, config)
}

func (l *Link) examine(ctx context.Context, conn *pgx.Conn) error {
	l.Remote, l.TLS = peer(conn)
	var err error
	if l.Replay, err = postgres.ReadReplay(ctx, conn); err != nil {
		return err
	}
	if err := l.time(ctx, conn); err != nil {
		return err
	}
	pooled, err := postgres.Settle(ctx, conn, tcp)
	if l.Pooled = pooled; errors.Is(err, postgres.ErrTransactionPooler) {
		l.Shared = true
		return nil
	}
	if err != nil {
		return err
	}
	return l.readIdleTimeout(ctx, conn)
}

// time measures a few round trips. It computes the clock difference from the fastest and
// records the slowest.
func (l *Link) time(ctx context.Context, conn *pgx.Conn) error {
	fastest := time.Duration(-1)
	for range pings {
		var server time.Time
		sent := time.Now()
		if err := conn.QueryRow(ctx, clockSQL).Scan(&server); err != nil {
			return err
		}
		trip := time.Since(sent)
		l.RoundTrip = max(l.RoundTrip, trip)
		if fastest < 0 || trip < fastest {
			fastest = trip
			l.ClockAhead, l.ClockError = sent.Add(trip/2).Sub(server), trip/2
		}
	}
	return nil
}

// readIdleTimeout reads the time after which the server gives up a client that does not
// answer.
func (l *Link) readIdleTimeout(ctx context.Context, conn *pgx.Conn) error {
	var unacknowledged, silent float64
	if err := conn.QueryRow(ctx, tcpSQL).Scan(&unacknowledged, &silent); err != nil {
		return err
	}
	for _, seconds := range []float64{unacknowledged, silent} {
		if d := time.Duration(seconds * float64(time.Second)); d > 0 && (l.GivesUp == 0 || d < l.GivesUp) {
			l.GivesUp = d
		}
	}
	return nil
}

// probeIdle reports whether the server ends a session that is idle for longer than its
// idle_session_timeout.
func probeIdle(ctx context.Context, url string) bool {
	conn, err := dial(ctx, url, true)
	if err != nil {
		return false
	}
	defer postgres.CloseNow(conn)
	settings := map[string]string{"idle_session_timeout": strconv.FormatInt(brief.Milliseconds(), 10)}
	if _, err := postgres.Settle(ctx, conn, settings); err != nil {
		return false
	}
	waiting, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return endedByServer(waiting, conn)
}

// endedByServer waits for the server to end an idle session.
func endedByServer(ctx context.Context, conn *pgx.Conn) bool {
	_, err := conn.WaitForNotification(ctx)
	return err != nil && ctx.Err() == nil
}

// peer returns the server's address of a connection; empty for this machine.
func peer(conn *pgx.Conn) (remote string, encrypted bool) {
	socket := conn.PgConn().Conn()
	_, encrypted = socket.(*tls.Conn)
	if address, ok := socket.RemoteAddr().(*net.TCPAddr); ok && !address.IP.IsLoopback() {
		remote = address.IP.String()
	}
	return remote, encrypted
}

// direct returns the address to read tables from; readOnly is true if it leads to a
// server that accepts no writes.
func (f Facts) direct() (url string, readOnly, found bool) {
	switch {
	case f.Pool.Err == nil:
		return f.Config.Database.URL, f.Pool.ReadOnly != "", true
	case f.Election.Err == nil:
		return f.Config.Database.LeaderURL, f.Election.ReadOnly != "", true
	default:
		return "", false, false
	}
}
