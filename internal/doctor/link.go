package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/dbpool"
)

// Keys of the addresses.
const (
	poolURL   = "database.url"
	leaderURL = "database.leader_url"
)

const (
	// applicationName is how the doctor's own connections show.
	applicationName = "forge-doctor"

	// pings is how many round trips are timed.
	pings = 10
	// brief is how long the server is told to bear a silent session in the test of
	// it, and patience how long it may take to do so.
	brief    = 250 * time.Millisecond
	patience = 5 * time.Second
	// connectTimeout is for addresses that do not say how long.
	connectTimeout = 5 * time.Second
)

// tcp is what an election's session asks of the server: what stays short is the
// operating system's.
var tcp = map[string]string{
	"tcp_user_timeout": "0", "tcp_keepalives_idle": "0", "tcp_keepalives_interval": "0", "tcp_keepalives_count": "0",
}

const (
	clockSQL      = `SELECT clock_timestamp()`
	inRecoverySQL = `SELECT pg_is_in_recovery()`

	// In seconds; 0 is off, as on Unix sockets.
	tcpSQL = `
SELECT max(setting::float8) FILTER (WHERE name = 'tcp_user_timeout') / 1000,
       max(setting::float8) FILTER (WHERE name = 'tcp_keepalives_idle')
       + max(setting::float8) FILTER (WHERE name = 'tcp_keepalives_interval')
       * max(setting::float8) FILTER (WHERE name = 'tcp_keepalives_count')
FROM pg_settings`
)

// dial connects as nodes do, or to any server at all.
func dial(ctx context.Context, url string, anyServer bool) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err // holds no password
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // leaves nothing behind in a pooler
	config.RuntimeParams["application_name"] = applicationName
	config.ValidateConnect = dbpool.RequireWritable
	if anyServer {
		config.ValidateConnect = nil
	}
	return pgx.ConnectConfig(ctx, config)
}

// probe learns what lies on the way that key names.
func probe(ctx context.Context, key, url string) Link {
	link := Link{Key: key}
	conn, err := dial(ctx, url, false)
	if dbpool.IsReadOnly(err) {
		link.ReadOnly = readOnlyRemedy(err, key, url)
		conn, err = dial(ctx, url, true)
	}
	if err == nil {
		defer closeNow(conn)
		err = link.examine(ctx, conn)
	}
	if err != nil {
		link.Err = errors.New(dbpool.Reason(err))
	}
	return link
}

func readOnlyRemedy(err error, key, url string) string {
	config, failed := pgx.ParseConfig(url)
	if failed != nil { // it was parsed to connect
		return ""
	}
	return dbpool.ReadOnlyRemedy(err, key, config)
}

func (l *Link) examine(ctx context.Context, conn *pgx.Conn) error {
	l.Remote, l.TLS = peer(conn)
	if err := conn.QueryRow(ctx, inRecoverySQL).Scan(&l.Replica); err != nil {
		return err
	}
	if err := l.time(ctx, conn); err != nil {
		return err
	}
	pooled, err := dbpool.Settle(ctx, conn, tcp)
	if l.Pooled = pooled; errors.Is(err, dbpool.ErrTransactionPooler) {
		l.Shared = true
		return nil
	}
	if err != nil {
		return err
	}
	return l.patience(ctx, conn)
}

// time takes the clock's difference from the fastest of a few round trips, and
// remembers the slowest.
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

// patience learns when the server gives up a client that does not answer.
func (l *Link) patience(ctx context.Context, conn *pgx.Conn) error {
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

// probeIdle sees whether the server ends a session that is silent for longer than
// it was told to bear.
func probeIdle(ctx context.Context, url string) bool {
	conn, err := dial(ctx, url, true)
	if err != nil {
		return false
	}
	defer closeNow(conn)
	settings := map[string]string{"idle_session_timeout": strconv.FormatInt(brief.Milliseconds(), 10)}
	if _, err := dbpool.Settle(ctx, conn, settings); err != nil {
		return false
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return endedByServer(waiting, conn)
}

// endedByServer waits for the end of a silent session.
func endedByServer(ctx context.Context, conn *pgx.Conn) bool {
	_, err := conn.WaitForNotification(ctx)
	return err != nil && ctx.Err() == nil
}

// peer says where a connection leads; empty is this machine.
func peer(conn *pgx.Conn) (remote string, encrypted bool) {
	socket := conn.PgConn().Conn()
	_, encrypted = socket.(*tls.Conn)
	if address, ok := socket.RemoteAddr().(*net.TCPAddr); ok && !address.IP.IsLoopback() {
		remote = address.IP.String()
	}
	return remote, encrypted
}

// closeNow takes no context: it must also work when the caller's has ended.
//
//nolint:contextcheck,nolintlint // contextcheck heeds this itself, unseen by nolintlint
func closeNow(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // only looked at
}

// direct is the address by which tables can be read, readOnly if it leads to servers
// that take no writes.
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
