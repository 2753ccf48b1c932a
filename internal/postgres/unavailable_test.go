package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
)

func TestUnavailableNamesTheReason(t *testing.T) {
	t.Parallel()
	refused := func(code string) error { return fmt.Errorf("heartbeat: %w", &pgconn.PgError{Code: code}) }
	for _, test := range []struct {
		err  error
		want string
	}{
		{io.ErrUnexpectedEOF, "it cannot be reached"},
		{fmt.Errorf("connect: %w", context.DeadlineExceeded), "it does not answer"},
		{postgres.ErrUnconfirmed, "it does not answer"},
		{errors.Join(pgconn.ErrReadOnlyConnection, errors.New("dial 127.0.0.1:1: connection refused")), "no server takes writes, only read-only ones answer"},
		{refused("25006"), "no server takes writes, only read-only ones answer"},
		{refused("57P03"), "it starts, stops or recovers"},
		{refused("57P01"), "it starts, stops or recovers"},
		{refused("53300"), "it has no free connection"},
		{refused("28P01"), "it rejects the password"},
		{refused("3D000"), "it does not exist"},
		{refused("42P01"), "it lacks tables of forge"},
		{refused("28000"), "it cannot be reached"},
	} {
		if got := postgres.Unavailable(test.err); got != test.want {
			t.Errorf("Unavailable(%v) = %q, want %q", test.err, got, test.want)
		}
	}
}
