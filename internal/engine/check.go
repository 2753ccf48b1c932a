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

// Check tests that session locks exclude another session and that notifications arrive. It
// returns an *UnfitError if the server answers and lacks one of them, and nil if Check cannot
// find out: the next connection reports the reason.
func Check(ctx context.Context, options Options) error {
	options = options.withDefaults()
	tests := []probe{{run: func(ctx context.Context, b *bench) (string, error) {
		return pair(ctx, b.LeaderURL, func(first, second *pgx.Conn) (string, error) {
			return "", checkElection(ctx, b, first, second)
		})
	}}}
	if options.LeaderURL != options.URL {
		tests = append(tests, probe{run: notifies})
	}
	for _, test := range tests {
		if result := (&bench{Options: options}).try(ctx, test); result.Status == Missing {
			return &UnfitError{Found: result.Found}
		}
	}
	return nil
}

// checkElection tests locks and, if the nodes listen on the same address, notifications.
func checkElection(ctx context.Context, b *bench, first, second *pgx.Conn) error {
	_, err := postgres.Settle(ctx, first, map[string]string{"application_name": applicationName})
	if err != nil {
		return fmt.Errorf("look for a pooler: %s", postgres.Reason(err)) // refused elsewhere, with its remedy
	}
	if _, err := excludes(ctx, first, second); err != nil || b.LeaderURL != b.URL {
		return err
	}
	_, err = arrives(ctx, first, second)
	return err
}
