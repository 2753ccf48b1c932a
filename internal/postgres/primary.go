package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrReadOnly means that servers answer but none accepts writes.
var ErrReadOnly = errors.New("only read-only servers answer")

// errReadOnlyByDefault is the error of a server that is read-only only because of
// its settings.
var errReadOnlyByDefault = fmt.Errorf("%w: default_transaction_read_only is on", pgconn.ErrReadOnlyConnection)

// RequireWritable rejects read-only servers. It is a pgconn.ValidateConnectFunc.
func RequireWritable(ctx context.Context, conn *pgconn.PgConn) error {
	err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn)
	if errors.Is(err, pgconn.ErrReadOnlyConnection) && conn.ParameterStatus("in_hot_standby") == "off" {
		return errReadOnlyByDefault
	}
	return err
}

// IsReadOnly reports whether a connection failed because of RequireWritable.
func IsReadOnly(err error) bool { return errors.Is(err, pgconn.ErrReadOnlyConnection) }

// ReadOnlyRemedy returns what to do about err, for which IsReadOnly is true. key is
// the setting that holds the address; config is the parsed address.
func ReadOnlyRemedy(err error, key string, config *pgx.ConnConfig) string {
	if errors.Is(err, errReadOnlyByDefault) {
		return fmt.Sprintf("default_transaction_read_only is on for user %s in database %s: set it to off where it is set, "+
			"with ALTER ROLE, ALTER DATABASE, ALTER SYSTEM or in the address",
			pgx.Identifier{config.User}.Sanitize(), pgx.Identifier{config.Database}.Sanitize())
	}
	return PrimaryRemedy(key, config)
}

// PrimaryRemedy returns what to do if an address leads only to replicas. key is the
// setting that holds the address; config is the parsed address.
func PrimaryRemedy(key string, config *pgx.ConnConfig) string {
	servers := Servers(config)
	if len(servers) == 1 {
		return fmt.Sprintf("%s names only %s, which is a replica: name the primary, or every server that may become it", key, servers[0])
	}
	return fmt.Sprintf("%s names %s, of which none takes writes now: start the primary, promote a replica, "+
		"or add the server that is the primary", key, strings.Join(servers, ", "))
}

// Servers returns the servers of an address in order: host and port, or the
// directory of a Unix socket.
func Servers(config *pgx.ConnConfig) []string {
	servers := []string{server(config.Host, config.Port)}
	for _, fallback := range config.Fallbacks {
		if name := server(fallback.Host, fallback.Port); !slices.Contains(servers, name) {
			servers = append(servers, name)
		}
	}
	return servers
}

func server(host string, port uint16) string {
	if strings.HasPrefix(host, "/") {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
