package leaderstore

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// dialSilent connects to a server that accepts the connection as a primary and does not answer
// any statement of the session.
func dialSilent(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		_ = acceptAsPrimary(pgproto3.NewBackend(server, server)) // a request to cancel is not answered either
		_, _ = io.Copy(io.Discard, server)
	}()
	return client, nil
}

var errCancelRequest = errors.New("not a connection")

func acceptAsPrimary(backend *pgproto3.Backend) error {
	first, err := backend.ReceiveStartupMessage()
	if err != nil {
		return err
	}
	if _, starts := first.(*pgproto3.StartupMessage); !starts {
		return errCancelRequest
	}
	backend.Send(&pgproto3.AuthenticationOk{})
	backend.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{1, 2, 3, 4}})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if err := backend.Flush(); err != nil {
		return err
	}
	if _, err := backend.Receive(); err != nil { // the client asks whether the server is read-only
		return err
	}
	backend.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("transaction_read_only"), DataTypeOID: 25}}})
	backend.Send(&pgproto3.DataRow{Values: [][]byte{[]byte("off")}})
	backend.Send(&pgproto3.CommandComplete{CommandTag: []byte("SHOW")})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	return backend.Flush()
}

func silentServer(config *pgx.ConnConfig) {
	config.DialFunc = dialSilent
	config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
}

var silentConfig = SessionConfig{
	URL: "postgres://u@127.0.0.1/d?sslmode=disable", Schema: "public", NodeID: "a",
	Incarnation: "00000000000000aa", Lease: 3 * time.Second, CheckInterval: time.Second,
}

// A session is not opened on a server that accepts the connection and then is silent. A server
// that needs seconds for each statement is slow, not silent.
func TestOpeningIsGivenUpOnSilence(t *testing.T) {
	t.Parallel()
	slow := func(ctx context.Context, _ *pgx.Conn) error {
		for range 4 {
			select {
			case <-time.After(5 * time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	for name, test := range map[string]struct {
		open   func(ctx context.Context) (*pgx.Conn, error)
		opened bool
	}{
		"lasting session": {func(ctx context.Context) (*pgx.Conn, error) {
			return connect(ctx, silentConfig, silentServer, nil)
		}, false},
		"silent statement": {func(ctx context.Context) (*pgx.Conn, error) {
			return dial(ctx, silentConfig, silentServer, func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, "SELECT")
				return err
			})
		}, false},
		"slow statements": {func(ctx context.Context) (*pgx.Conn, error) { return dial(ctx, silentConfig, silentServer, slow) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				conn, err := test.open(ctx)
				took := time.Since(began)
				switch {
				case test.opened && err != nil:
					t.Errorf("not opened: %v", err)
				case test.opened:
					postgres.CloseNow(conn)
				case err == nil || !strings.Contains(err.Error(), "not ready within 30s"):
					t.Errorf("opened after %s: %v", took, err)
				}
				if took > time.Minute {
					t.Errorf("took %s", took)
				}
				time.Sleep(time.Minute) // until the connection is closed
			})
		})
	}
}

// A deputy does not wait for longer than the server waits.
func TestDeputyWaitIsGivenUpOnSilence(t *testing.T) {
	t.Parallel()
	for _, alive := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			conn, err := dial(t.Context(), silentConfig, silentServer, func(context.Context, *pgx.Conn) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			w := &Watch{conn: conn, alive: alive}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			if _, err := w.AwaitEnd(ctx, 1, 2); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				t.Errorf("waited for %s: %v", time.Since(began), err)
			}
			w.Close()
			time.Sleep(time.Minute) // until the connection is closed
		})
	}
}
