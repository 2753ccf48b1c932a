package alerts

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// WatchOptions are the settings of the evaluation of alerts.
type WatchOptions struct {
	Pool *pgxpool.Pool
	// Interval is the time between two totals.
	Interval time.Duration
	// InForce returns the configuration in force; it may omit the body when the hash
	// equals unless.
	InForce func(ctx context.Context, unless string) (cronstore.Config, error)
	// DeadmanURL returns the address to request after each evaluation; empty means none.
	// It may be nil.
	DeadmanURL func() string
	// Deadman is the client for these requests, required with DeadmanURL. It must not
	// follow redirects.
	Deadman *http.Client
	Logger  *slog.Logger
}
