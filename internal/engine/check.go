package engine

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// UnfitError means that the server lacks what an election by session locks needs.
type UnfitError struct {
	// Found is what the server did.
	Found string
}

func (e *UnfitError) Error() string {
	return fmt.Sprintf("this server cannot elect by session locks: %s; set cluster.leader_election.strategy = \"lease\" on every node; "+
		"see forge doctor --engine", e.Found)
}

// CheckLocks tests that a session lock at the leader's address excludes another session. It
// returns an *UnfitError if it does not, and nil if CheckLocks cannot find out: the next
// connection reports the reason.
func CheckLocks(ctx context.Context, options Options) error {
	b := &bench{Options: options.withDefaults()}
	result := b.try(ctx, probe{run: func(ctx context.Context, b *bench) (string, error) {
		return pair(ctx, b.LeaderURL, func(first, second *pgx.Conn) (string, error) {
			if _, err := postgres.Settle(ctx, first, map[string]string{"application_name": applicationName}); err != nil {
				return "", fmt.Errorf("look for a pooler: %s", postgres.Reason(err)) // refused elsewhere, with its remedy
			}
			_, err := excludes(ctx, first, second)
			return "", err
		})
	}})
	if result.Status == Missing {
		return &UnfitError{Found: result.Found}
	}
	return nil
}
