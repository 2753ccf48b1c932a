// Package lockholders tells which sessions hold the advisory locks of a cluster's
// roles, and which of them are no leaders of it: another application, another forge
// cluster, or any login that may connect.
package lockholders

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// DB is what is read through: a pool, a connection or a transaction.
type DB interface {
	leaderstore.Queryer
	leaderstore.RowQueryer
}

// Locks returns the locks of the built-in roles, of those in the file and of those
// that were ever led, with the ids that they have on the server.
func Locks(ctx context.Context, db DB, cfg *config.Config, leaders []leaderstore.Leader) ([]leaderstore.Lock, error) {
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

// offset is 0 where the schema is older than this binary, or empty.
func offset(ctx context.Context, db DB) (int64, error) {
	moved, err := leaderstore.LockOffset(ctx, db)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "42883" { // undefined_function
		return 0, nil
	}
	return moved, err
}

// Read returns the sessions that hold the locks of a cluster's roles.
func Read(ctx context.Context, db DB, cfg *config.Config, leaders []leaderstore.Leader) ([]leaderstore.LockHolder, error) {
	locks, err := Locks(ctx, db, cfg, leaders)
	if err != nil {
		return nil, err
	}
	return leaderstore.LockHolders(ctx, db, locks)
}

// Leaders returns the row of every role and of each built-in one that has none. Roles
// that nobody leads come with the session that holds their lock, if there is one.
func Leaders(ctx context.Context, db DB, cfg *config.Config) ([]leaderstore.Leader, error) {
	leaders, err := leaderstore.Leaders(ctx, db)
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
	holders, err := Read(ctx, db, cfg, leaders)
	if err != nil {
		return nil, err
	}
	for i, leader := range leaders {
		for _, holder := range holders {
			if holder.Role == leader.Role && !leader.Leads() && !leader.Names(holder) {
				leaders[i].LockHolder = &holder
			}
		}
	}
	return leaders, nil
}

var _ DB = pgx.Tx(nil)
