package postgres_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

func TestConnectGivesUpIfAllServersAreSilent(t *testing.T) {
	t.Parallel()
	for _, hosts := range []string{"a,b", "a,b,c"} {
		for range 20 {
			synctest.Test(t, func(t *testing.T) {
				config, err := pgx.ParseConfig("host=" + hosts + " user=forge sslmode=disable connect_timeout=3")
				if err != nil {
					t.Fatal(err)
				}
				config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
				config.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				_, err = postgres.Connect(ctx, config)
				if took := time.Since(began); err == nil || took > 10*time.Second || !strings.Contains(err.Error(), "a:5432") {
					t.Fatalf("%s: after %s: %v", hosts, took, err)
				}
			})
		}
	}
}
