package postgres

import (
	"context"
	"errors"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// PostgreSQL error codes of a server that starts, stops or was demoted, and of what is missing.
const (
	codeReadOnlyTransaction = "25006"
	codeAdminShutdown       = "57P01"
	codeCrashShutdown       = "57P02"
	codeUndefinedTable      = "42P01"
	codeInvalidSchemaName   = "3F000"
)

// Unavailable returns in words what an error says about a database that did not do what it was
// asked to, without names of hosts or users.
func Unavailable(err error) string {
	refused, answered := errors.AsType[*pgconn.PgError](err)
	network, failed := errors.AsType[net.Error](err)
	switch {
	case IsReadOnly(err), answered && refused.Code == codeReadOnlyTransaction:
		return "no server takes writes, only read-only ones answer"
	case answered && refused.Code == codeTooManyConnections:
		return "it has no free connection"
	case answered && (refused.Code == codeCannotConnectNow || refused.Code == codeAdminShutdown || refused.Code == codeCrashShutdown):
		return "it starts, stops or recovers"
	case answered && (refused.Code == codeUndefinedTable || refused.Code == codeInvalidSchemaName):
		return "it lacks tables of forge"
	case answered && refused.Code == codeInvalidCatalogName:
		return "it does not exist"
	case answered && refused.Code == codeInvalidPassword:
		return "it rejects the password"
	case errors.Is(err, context.DeadlineExceeded), failed && network.Timeout():
		return "it does not answer"
	default:
		return "it cannot be reached"
	}
}
