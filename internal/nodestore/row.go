package nodestore

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// rowOf returns the arguments of insertSQL and replaceSQL. The columns are NOT
// NULL, so nil collections become empty collections.
func rowOf(n Node, policy Policy) []any {
	return []any{
		n.NodeID, n.Incarnation, n.Hostname, n.PID, n.Version, n.APIURL, orEmptyList(n.Roles), orEmptyList(n.Capabilities),
		orEmpty(n.Tags), orEmptyList(n.Kinds), orEmpty(n.Queues), n.Slots, n.ConfigHash, orEmpty(n.Definitions),
		n.TZData, policy.WithDefaults().DeadThreshold, orEmpty(n.RiverKinds), orEmpty(n.Reserved),
	}
}

func orEmpty[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

func orEmptyList(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func scan(row pgx.Row) (Node, error) {
	var n Node
	var fenced, reported *time.Time
	if err := row.Scan(append(targets(&n, &fenced), &reported, &n.Reporting)...); err != nil {
		return Node{}, err
	}
	n.FencedAt, n.ReportedAt = postgres.TimeOrZero(fenced), postgres.TimeOrZero(reported)
	return n, nil
}

func scanLiveness(row pgx.Row) (Liveness, error) {
	var l Liveness
	var fenced *time.Time
	var age float64
	var held []int64
	if err := row.Scan(append(targets(&l.Node, &fenced), &age, &held)...); err != nil {
		return Liveness{}, err
	}
	l.FencedAt = postgres.TimeOrZero(fenced)
	l.HeartbeatAge = time.Duration(age * float64(time.Second))
	l.SessionLock = slices.Contains(held, lockObject(l.Incarnation))
	return l, nil
}

// targets returns the scan targets for columnsSQL.
func targets(n *Node, fenced **time.Time) []any {
	return []any{
		&n.NodeID, &n.Incarnation, &n.Hostname, &n.PID, &n.Version, &n.APIURL, &n.State, &n.Roles, &n.Capabilities,
		&n.Tags, &n.Kinds, &n.Queues, &n.Definitions, &n.Slots, &n.Running, &n.ConfigHash, &n.ConfigError, &n.ConfigWaiting, &n.ConfigRestart,
		&n.StartedAt, &n.LastHeartbeatAt, fenced, &n.TZData, &n.RiverKinds, &n.Reserved, &n.Observed, &n.Now,
	}
}

// lockClass and lockObject are the keys of SessionLock as pg_locks shows them: oids
// are unsigned.
func lockClass() int64 { return int64(uint32(sessionLockClass)) }

func lockObject(incarnation string) int64 {
	_, object := SessionLock(incarnation)
	return int64(uint32(object))
}
