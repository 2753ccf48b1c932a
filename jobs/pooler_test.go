package jobs_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/jobs"
)

// The results are the same through a pooler in transaction mode, and the shared session
// does not change.
func TestSQLThroughTransactionPooler(t *testing.T) {
	t.Parallel()
	var pooler string
	testSQL(t, func(o *jobs.Options) {
		pooler = pgtest.StartBouncer(t, o.ClusterURL, "transaction", "default_pool_size = 1").URL()
		o.ClusterURL = pooler
	})
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), pooler)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.Background()) }()
		var timeout string
		err = conn.QueryRow(context.Background(), "SHOW statement_timeout", pgx.QueryExecModeSimpleProtocol).Scan(&timeout)
		if err != nil || timeout != "0" {
			t.Errorf("the shared session has a timeout of %s, %v", timeout, err)
		}
	})
}
