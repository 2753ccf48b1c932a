package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// roleLocks returns the locks of the built-in roles, of the roles in the file and
// of those that ever had a leader, with their ids on the server.
func roleLocks(ctx context.Context, db postgres.DB, cfg *config.Config, leaders []leaderstore.Leader) ([]leaderstore.Lock, error) {
	names := map[string]bool{}
	for _, role := range roles.All() {
		names[string(role)] = true
	}
	for role := range cfg.Cluster.LeaderElection.Roles {
		names[role] = true
	}
	for _, leader := range leaders {
		names[leader.Role] = true
	}
	offset, err := offset(ctx, db)
	if err != nil {
		return nil, err
	}
	var locks []leaderstore.Lock
	for _, name := range slices.Sorted(maps.Keys(names)) {
		lock, err := roles.Lock(roles.Role(name), cfg.Cluster.LeaderElection.Roles[name].LockID, cfg.Cluster.LockNamespace)
		if err != nil {
			return nil, fmt.Errorf("lock of %s: %w", name, err)
		}
		locks = append(locks, lock.At(offset))
	}
	return locks, nil
}

// offset returns the offset of the lock ids, 0 where the schema is older than this
// binary, or empty.
func offset(ctx context.Context, db postgres.DB) (int64, error) {
	moved, err := leaderstore.New(db).LockOffset(ctx)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "42883" { // undefined_function
		return 0, nil
	}
	return moved, err
}

// lockHolders returns the sessions that hold the locks of a cluster's roles.
func lockHolders(ctx context.Context, db postgres.DB, cfg *config.Config, leaders []leaderstore.Leader) ([]leaderstore.LockHolder, error) {
	locks, err := roleLocks(ctx, db, cfg, leaders)
	if err != nil {
		return nil, err
	}
	return leaderstore.New(db).LockHolders(ctx, locks)
}

// LeadersWithHolders returns the row of every role, and one for each built-in role
// without a row. A role without a leader has the session that holds its lock, if there is
// one.
func LeadersWithHolders(ctx context.Context, db postgres.DB, cfg *config.Config) ([]leaderstore.Leader, error) {
	leaders, err := leaderstore.New(db).Leaders(ctx)
	if err != nil {
		return nil, err
	}
	for _, role := range roles.All() {
		if !slices.ContainsFunc(leaders, func(l leaderstore.Leader) bool { return l.Role == string(role) }) {
			leaders = append(leaders, leaderstore.Leader{Role: string(role)})
		}
	}
	vacant := slices.ContainsFunc(leaders, func(l leaderstore.Leader) bool { return !l.Leads() })
	if !vacant || cfg.Cluster.LeaderElection.ByLease() {
		return leaders, nil
	}
	holders, err := lockHolders(ctx, db, cfg, leaders)
	if err != nil {
		return nil, err
	}
	for i, leader := range leaders {
		for _, holder := range holders {
			if holder.Role == leader.Role && !leader.Leads() && !leader.IsHeldBy(holder) {
				leaders[i].LockHolder = &holder
			}
		}
	}
	return leaders, nil
}
