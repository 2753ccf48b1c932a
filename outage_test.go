package forge

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/nodestore"
)

func TestOutageHasItsBeginningAndItsLatestReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o outage
		demand := func(got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		demand(o.String(), "")
		demand(o.describe(io.ErrUnexpectedEOF), "it cannot be reached")
		o.record(fmt.Errorf("heartbeat: %w", io.ErrUnexpectedEOF))
		time.Sleep(12500 * time.Millisecond)
		o.record(pgconn.ErrReadOnlyConnection)
		const since = ", since 2000-01-01T00:00:00Z (12s)"
		demand(o.String(), "no server takes writes, only read-only ones answer"+since)
		demand(o.describe(io.ErrUnexpectedEOF), "it cannot be reached"+since)
		o.record(nil)
		demand(o.String(), "")
		o.record(errors.New("no route"))
		o.record(fmt.Errorf("heartbeat: %w", nodestore.ErrFenced))
		demand(o.String(), "")
	})
}
