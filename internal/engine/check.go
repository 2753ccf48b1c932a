package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// UnfitError means that the server lacks what the strategy Advisory needs.
type UnfitError struct {
	// Found is what the server did.
	Found string
}

func (e *UnfitError) Error() string {
	return fmt.Sprintf("this server does not do for cluster.leader_election.strategy = %q: %s; set it to %q on every node; "+
		"see forge doctor --engine", Advisory, e.Found, Lease)
}

// CheckSessions tests what the strategy Advisory needs: a session lock excludes another
// session, the server ends a silent session, and a notification arrives. It returns an
// *UnfitError if the server lacks one of them. It returns nil if CheckSessions cannot find
// out: the next connection reports the reason.
func CheckSessions(ctx context.Context, options Options) error {
	b := &bench{Options: options.withDefaults()}
	checks := []func(context.Context, *bench) (string, error){refusesSecondLock, endsIdleSessions, notifiesListener}
	results := make([]Result, len(checks))
	var running sync.WaitGroup
	for i, check := range checks {
		running.Go(func() { results[i] = b.try(ctx, probe{run: check}) })
	}
	running.Wait()
	for _, result := range results {
		if result.Status == Missing {
			return &UnfitError{Found: result.Found}
		}
	}
	return nil
}

func refusesSecondLock(ctx context.Context, b *bench) (string, error) {
	return pairOfSessions(ctx, b.LeaderURL, func(first, second *pgx.Conn) error {
		_, err := excludes(ctx, first, second)
		return err
	})
}

func notifiesListener(ctx context.Context, b *bench) (string, error) {
	return pairOfSessions(ctx, b.URL, func(first, second *pgx.Conn) error {
		_, err := arrives(ctx, first, second)
		return err
	})
}

// pairOfSessions is pair on the primary, unless there is a pooler in transaction mode: that is
// refused elsewhere, with its remedy.
func pairOfSessions(ctx context.Context, url string, do func(first, second *pgx.Conn) error) (string, error) {
	return pairBy(ctx, dialPrimary, url, func(first, second *pgx.Conn) (string, error) {
		if _, err := postgres.Settle(ctx, first, map[string]string{"application_name": applicationName}); err != nil {
			return "", fmt.Errorf("look for a pooler: %s", postgres.Reason(err))
		}
		return "", do(first, second)
	})
}
