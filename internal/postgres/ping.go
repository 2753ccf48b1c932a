package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// oldest is the first PostgreSQL version with idle_session_timeout, which ends the
// session of a leader that hangs.
const oldest = 14

// PostgreSQL error codes that have their own remedy.
const (
	codeInvalidPassword     = "28P01"
	codeInvalidCatalogName  = "3D000"
	codeInsufficientRight   = "42501"
	codeTooManyConnections  = "53300"
	codeCannotConnectNow    = "57P03"
	addressOfDatabase       = "database.url or FORGE_DATABASE_URL"
	remedyForAnyOtherReason = "check " + addressOfDatabase + ", or run forge dev for a database of your own"
)

// Ping checks that the database answers and that forge can work with it. The error
// wraps ErrUnreachable, or ErrReadOnly if only read-only servers answer. It is one
// line that includes the remedy, and never contains a password.
func Ping(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		err = conn.Ping(ctx)
	}
	if err == nil {
		return fit(conn.Conn().PgConn(), pool.Config().ConnConfig.Database)
	}
	if IsReadOnly(err) {
		return fmt.Errorf("%w for writing: %w; %s; see forge doctor", ErrUnreachable, ErrReadOnly,
			ReadOnlyRemedy(err, addressOfDatabase, pool.Config().ConnConfig))
	}
	if errors.Is(err, ErrTransactionPooler) {
		return fmt.Errorf("%w as forge needs it: %w; let database.url lead straight to PostgreSQL or through a pooler "+
			"in session mode, or set cluster.leader_election.strategy = \"lease\" on every node; see forge doctor", ErrUnreachable, ErrTransactionPooler)
	}
	remedy := cmp.Or(Remedy(err, addressOfDatabase, pool.Config().ConnConfig), remedyForAnyOtherReason)
	return fmt.Errorf("%w: %s; %s; see forge doctor", ErrUnreachable, Reason(err), remedy)
}

// Reason returns the cause of a connection error: pgx lists every address it tried,
// over several lines.
func Reason(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Message
	}
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// Remedy returns what to do about a connection error; empty if the error does not say. key is
// the setting that holds the address; config is the parsed address.
func Remedy(err error, key string, config *pgx.ConnConfig) string {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok && strings.Contains(err.Error(), "tls") { // from pgconn, crypto/tls and crypto/x509
		return "check sslmode and sslrootcert in " + key + ", and ssl at the server"
	}
	if !ok {
		return ""
	}
	database, user := pgx.Identifier{config.Database}.Sanitize(), pgx.Identifier{config.User}.Sanitize()
	switch refused.Code {
	case codeInvalidPassword:
		return "check the user and the password in " + key
	case codeInvalidCatalogName:
		return fmt.Sprintf("create it (CREATE DATABASE %s), or check %s", database, key)
	case codeInsufficientRight:
		return fmt.Sprintf("let the database's owner run GRANT CONNECT ON DATABASE %s TO %s", database, user)
	case codeTooManyConnections:
		return "raise max_connections, or the CONNECTION LIMIT of the role or the database, or lower database.pool_size"
	case codeCannotConnectNow, codeAdminShutdown, codeCrashShutdown:
		return "try again when it is up"
	default:
		return ""
	}
}

// fit rejects a server on which forge would fail later, based on the parameters
// that the server reports.
func fit(conn *pgconn.PgConn, database string) error {
	version := conn.ParameterStatus("server_version")
	if major := majorOf(version); major > 0 && major < oldest {
		return fmt.Errorf("%w as forge needs it: PostgreSQL %s has no idle_session_timeout; upgrade it to %d or newer", ErrUnreachable, version, oldest)
	}
	if encoding := conn.ParameterStatus("server_encoding"); encoding != "" && encoding != "UTF8" {
		return fmt.Errorf("%w as forge needs it: database %q is encoded in %s, which cannot hold every output and argument; "+
			"create one with ENCODING 'UTF8' TEMPLATE template0", ErrUnreachable, database, encoding)
	}
	return nil
}

// majorOf returns the major version of "14.2 (Debian 14.2-1)" or "15beta1", and 0
// if it cannot parse the version.
func majorOf(version string) int {
	end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(version)
	}
	major, err := strconv.Atoi(version[:end])
	if err != nil {
		return 0
	}
	return major
}
