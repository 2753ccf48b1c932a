package leaderstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// clusterLockClass is the first key of the advisory lock that all election sessions of a
// cluster share. The second key is the oid of the schema. Any database user can read in
// pg_locks to which cluster a session belongs.
const clusterLockClass int32 = 1179603523 // "FORC"

const (
	clusterLockSQL = `SELECT pg_advisory_lock_shared($1::int, current_schema()::regnamespace::oid::int)`

	// lockOffsetSQL reads the offset of the lock ids that are BySchema.
	lockOffsetSQL = `SELECT forge_lock_offset()`

	// clusterOfSQL selects the schema of the cluster of session h.pid by clusterLockClass.
	clusterOfSQL = `(
    SELECT n.nspname::text
    FROM pg_locks c
    JOIN pg_namespace n ON n.oid = c.objid
    WHERE c.pid = h.pid AND c.locktype = 'advisory' AND c.objsubid = 2 AND c.classid::bigint = 1179603523 AND c.granted
      AND c.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    LIMIT 1)`

	// pg_locks splits a 64-bit key into two halves with objsubid 1.
	holdersSQL = `
WITH h AS MATERIALIZED (
    SELECT wanted.role, wanted.id, k.pid
    FROM unnest($1::text[], $2::bigint[]) AS wanted (role, id)
    JOIN pg_locks k ON k.locktype = 'advisory' AND k.granted AND k.objsubid = 1
        AND (k.classid::bigint << 32) | k.objid::bigint = wanted.id
        AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
SELECT h.role, h.id, h.pid, coalesce(a.application_name, ''), coalesce(a.usename::text, ''), coalesce(host(a.client_addr), ''),
       a.backend_start, coalesce(` + clusterOfSQL + `, ''), coalesce(current_schema(), '')
FROM h
LEFT JOIN pg_stat_activity a ON a.pid = h.pid
ORDER BY h.role, h.pid
LIMIT 1000`
)

// LockHolder is a session that holds the advisory lock of a role.
type LockHolder struct {
	Role   string `json:"-"`
	LockID int64  `json:"lock_id"`
	PID    int    `json:"pid"`
	// Application is the session's application_name, User its database user and Client its
	// address. Client is empty for a local session and if the reader is not permitted to
	// see it.
	Application string `json:"application_name"`
	User        string `json:"user"`
	Client      string `json:"client,omitempty"`
	// Since is when the session began; zero if the reader is not permitted to see it.
	Since time.Time `json:"since,omitzero"`
	// Schema is the schema of the forge cluster to which the election session belongs;
	// empty for other applications.
	Schema string `json:"schema,omitempty"`
	// Foreign is true if Schema is not the reader's schema.
	Foreign bool `json:"foreign_cluster,omitempty"`
}

// LockHolders returns the sessions that hold the locks. BySchema is ignored: use Lock.At
// first.
func (s *Store) LockHolders(ctx context.Context, locks []Lock) ([]LockHolder, error) {
	roles, ids := make([]string, len(locks)), make([]int64, len(locks))
	for i, lock := range locks {
		roles[i], ids[i] = lock.Role, lock.ID
	}
	holders, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (LockHolder, error) {
		var h LockHolder
		var since *time.Time
		var own string
		err := row.Scan(&h.Role, &h.LockID, &h.PID, &h.Application, &h.User, &h.Client, &since, &h.Schema, &own)
		h.Since, h.Foreign = postgres.TimeOrZero(since), h.Schema != "" && h.Schema != own
		return h, err
	}, holdersSQL, roles, ids)
	if err != nil {
		return nil, fmt.Errorf("read the lock holders: %w", err)
	}
	return holders, nil
}

// IsHeldBy reports whether the row of the holder's role names its process as the leader.
func (l Leader) IsHeldBy(h LockHolder) bool {
	return l.Role == h.Role && l.Incarnation != "" && strings.HasPrefix(h.Application, "forge:"+l.Incarnation+":")
}

// String formats the session for messages.
func (h LockHolder) String() string {
	text := fmt.Sprintf("process %d (user %s, application_name %q", h.PID, h.User, h.Application)
	if h.Client != "" {
		text += ", from " + h.Client
	}
	if !h.Since.IsZero() {
		text += ", since " + h.Since.UTC().Format(time.RFC3339)
	}
	text += ")"
	switch {
	case h.Foreign:
		return "another forge cluster, in schema " + h.Schema + ": " + text
	case h.Schema == "" && strings.HasPrefix(h.Application, "forge:"):
		return "another forge cluster, in an unknown schema: " + text
	}
	return text
}

// LockOffset reads the offset of the lock ids that are BySchema. The database fixed it when
// the schema was created or upgraded.
func (s *Store) LockOffset(ctx context.Context) (int64, error) {
	var offset int64
	if err := s.db.QueryRow(ctx, lockOffsetSQL).Scan(&offset); err != nil {
		return 0, fmt.Errorf("read the lock offset: %w", err)
	}
	return offset, nil
}

// At returns the lock with its id on a server with the given offset. Ids of BySchema locks
// stay positive.
func (l Lock) At(offset int64) Lock {
	if l.BySchema {
		l.ID, l.BySchema = (l.ID+offset)&(1<<63-1), false
	}
	return l
}
