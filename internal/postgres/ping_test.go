package postgres_test

import (
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// pretend starts a server that answers each client with the messages, and returns
// its address. It stands in for servers that test machines do not have.
func pretend(t *testing.T, answer ...pgproto3.BackendMessage) (address string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveOnce(conn, answer)
		}
	}()
	return listener.Addr().String()
}

func serveOnce(conn net.Conn, answer []pgproto3.BackendMessage) {
	defer func() { _ = conn.Close() }()
	server := pgproto3.NewBackend(conn, conn)
	if _, err := server.ReceiveStartupMessage(); err != nil {
		return
	}
	for _, message := range answer {
		server.Send(message)
		if _, asks := message.(*pgproto3.AuthenticationCleartextPassword); asks {
			if server.Flush() != nil || server.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
				return
			}
			if _, err := server.Receive(); err != nil {
				return
			}
		}
	}
	if server.Flush() != nil {
		return
	}
	for { // any query returns no rows
		message, err := server.Receive()
		if err != nil {
			return
		}
		if _, query := message.(*pgproto3.Query); query {
			server.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 0")})
			server.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			_ = server.Flush()
		}
	}
}

func pingError(t *testing.T, address string) string {
	t.Helper()
	pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: address, Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	err = postgres.Ping(t.Context(), pool)
	if !errors.Is(err, postgres.ErrUnreachable) {
		t.Fatalf("Ping = %v", err)
	}
	return strings.TrimPrefix(err.Error(), postgres.ErrUnreachable.Error())
}

// seeDoctor is the end of the message for a failed connection.
const seeDoctor = "; see forge doctor"

// Ping returns the server's message with a remedy, and never a password.
func TestPingReturnsRemedy(t *testing.T) {
	t.Parallel()
	refusal := func(code, message string) []pgproto3.BackendMessage {
		return []pgproto3.BackendMessage{&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: message}}
	}
	for want, answer := range map[string][]pgproto3.BackendMessage{
		`: password authentication failed for user "u"; check the user and the password in database.url or FORGE_DATABASE_URL`: append(
			[]pgproto3.BackendMessage{&pgproto3.AuthenticationCleartextPassword{}}, refusal("28P01", `password authentication failed for user "u"`)...),
		`: sorry, too many clients already; raise max_connections, or the CONNECTION LIMIT of the role or the database, or lower database.pool_size`: refusal("53300", "sorry, too many clients already"),
		`: the database system is starting up; try again when it is up`:                                                                              refusal("57P03", "the database system is starting up"),
		`: permission denied for database "db"; let the database's owner run GRANT CONNECT ON DATABASE "db" TO "u"`:                                  refusal("42501", `permission denied for database "db"`),
		`: no pg_hba.conf entry for host "10.0.0.1"; check database.url or FORGE_DATABASE_URL, or run forge dev for a database of your own`: refusal(
			"28000", `no pg_hba.conf entry for host "10.0.0.1"`),
	} {
		if got := pingError(t, "postgres://u:hunter2@"+pretend(t, answer...)+"/db?sslmode=disable"); got != want+seeDoctor {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	plain, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := pingError(t, "postgres://u@"+plain.Host+"/db?sslmode=require"); !strings.Contains(got, "check sslmode and sslrootcert in database.url") {
		t.Errorf("a server without TLS: %s", got)
	}
	unreachable := pingError(t, "postgres://u:hunter2@127.0.0.1:1/db?sslmode=disable")
	if !strings.Contains(unreachable, "connection refused") || strings.Contains(unreachable, "hunter2") || strings.Contains(unreachable, "\n") {
		t.Errorf("got %q", unreachable)
	}
}

// elsewhere returns the address of the test's database with another database name.
func elsewhere(t *testing.T, name string) string {
	t.Helper()
	address, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	if name == "" {
		name = strings.TrimPrefix(address.Path, "/") + "_latin"
	}
	address.Path = "/" + name
	return address.String()
}

func TestPingReportsMissingDatabase(t *testing.T) {
	t.Parallel()
	const want = `: database "No such" does not exist; create it (CREATE DATABASE "No such"), or check database.url or FORGE_DATABASE_URL`
	if got := pingError(t, elsewhere(t, "No such")); got != want+seeDoctor {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPingRejectsOtherEncodings(t *testing.T) {
	t.Parallel()
	address := elsewhere(t, "")
	parsed, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	admin := pgtest.Pool(t)
	execute := func(sql string) {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Error(err)
		}
	}
	execute("CREATE DATABASE " + parsed.Database + " ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	defer execute("DROP DATABASE " + parsed.Database + " WITH (FORCE)")
	want := ` as forge needs it: database "` + parsed.Database + `" is encoded in LATIN1, which cannot hold every output and argument; ` +
		"create one with ENCODING 'UTF8' TEMPLATE template0"
	if got := pingError(t, address); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPingRejectsOldServer(t *testing.T) {
	t.Parallel()
	address := pretend(t, &pgproto3.AuthenticationOk{},
		&pgproto3.ParameterStatus{Name: "server_version", Value: "13.22 (Debian 13.22-1)"},
		&pgproto3.ParameterStatus{Name: "server_encoding", Value: "UTF8"},
		&pgproto3.ParameterStatus{Name: "default_transaction_read_only", Value: "off"}, &pgproto3.ParameterStatus{Name: "in_hot_standby", Value: "off"},
		&pgproto3.ReadyForQuery{TxStatus: 'I'})
	config, err := pgxpool.ParseConfig("postgres://u@" + address + "/db?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config) // for a server that receives no query
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	const want = "PostgreSQL cannot be reached as forge needs it: PostgreSQL 13.22 (Debian 13.22-1) has no idle_session_timeout; upgrade it to 14 or newer"
	if err := postgres.Ping(t.Context(), pool); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
