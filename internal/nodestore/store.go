package nodestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

const columnsSQL = `
    node_id, incarnation, hostname, pid, version, api_url, state, roles, capabilities, tags, kinds, queues,
    definitions, slots, running, config_hash, config_error, config_waiting, config_restart, started_at, last_heartbeat_at, fenced_at,
    tzdata, river_kinds, reserved, forge_node_state(state, last_heartbeat_at, dead_after), clock_timestamp()`

// A node's metrics count as its own only if this process reported them.
const reportedSQL = `
SELECT` + columnsSQL + `, at, (at > clock_timestamp() - 3 * every AND state <> 'dead') IS TRUE
FROM forge_nodes
LEFT JOIN forge_metrics_nodes USING (node_id, incarnation)`

const listSQL = reportedSQL + `
ORDER BY node_id`

const getSQL = reportedSQL + `
WHERE node_id = $1`

// The locks are read once per statement, not once per row.
const livenessSQL = `
SELECT` + columnsSQL + `,
    extract(epoch FROM clock_timestamp() - last_heartbeat_at)::float8,
    ARRAY (
        SELECT objid::bigint
        FROM pg_locks
        WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND objsubid = 2 AND classid::bigint = $1
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
FROM forge_nodes`

const aliveSQL = livenessSQL + `
WHERE state IN ('active', 'draining') AND fenced_at IS NULL
ORDER BY node_id`

const lockRowSQL = livenessSQL + `
WHERE node_id = $2
FOR UPDATE`

// The statement waits for a concurrent insert of the same node id, and then does
// nothing.
const insertSQL = `
INSERT INTO forge_nodes (node_id, incarnation, hostname, pid, version, api_url, state, roles, capabilities, tags,
    kinds, queues, slots, running, config_hash, definitions, tzdata, dead_after, river_kinds, reserved, started_at, last_heartbeat_at)
VALUES ($1, $2, $3, $4, $5, $6, 'active', $7, $8, $9, $10, $11, $12, 0, $13, $14, $15, $16, $17, $18, clock_timestamp(), clock_timestamp())
ON CONFLICT (node_id) DO NOTHING`

const replaceSQL = `
UPDATE forge_nodes
SET incarnation = $2, hostname = $3, pid = $4, version = $5, api_url = $6, state = 'active', roles = $7,
    capabilities = $8, tags = $9, kinds = $10, queues = $11, slots = $12, running = 0, config_hash = $13,
    definitions = $14, tzdata = $15, dead_after = $16, river_kinds = $17, reserved = $18, config_error = '', config_waiting = '', config_restart = '{}', started_at = clock_timestamp(), last_heartbeat_at = clock_timestamp(), fenced_at = NULL
WHERE node_id = $1`

const heartbeatSQL = `
UPDATE forge_nodes
SET running = $3, last_heartbeat_at = clock_timestamp()
WHERE node_id = $1 AND incarnation = $2 AND fenced_at IS NULL
RETURNING state`

// A node that has left stays left: its jobs were reassigned.
const setStateSQL = `
UPDATE forge_nodes
SET state = $3, running = CASE WHEN $3 = 'left' THEN 0 ELSE running END
WHERE node_id = $1 AND incarnation = $2 AND fenced_at IS NULL AND (state <> 'left' OR $3 = 'left')`

const fenceSQL = `
UPDATE forge_nodes
SET state = 'dead', running = 0, fenced_at = clock_timestamp()
WHERE incarnation = $1 AND fenced_at IS NULL AND state IN ('active', 'draining')
RETURNING node_id`

const admittedSQL = `SELECT EXISTS (SELECT FROM forge_nodes WHERE incarnation = $1 AND fenced_at IS NULL)`

const notifySQL = `SELECT pg_notify(current_schema() || '.' || $1, $2)`

// ErrFenced means that this incarnation is no longer a node: it was found dead, or
// another process took its node id. It must stop claiming jobs, and exit or
// register with a new incarnation.
var ErrFenced = errors.New("fenced: the cluster considers this process dead")

// ErrNotFound means that no node with that id ever joined.
var ErrNotFound = errors.New("node not found")

// DuplicateIDError means that another process, which is apparently alive, holds the
// node id.
type DuplicateIDError struct {
	NodeID        string
	Incarnation   string
	Hostname      string
	PID           int
	LastHeartbeat time.Time
	// SessionLock is whether the process holds its session lock.
	SessionLock bool
}

func (e *DuplicateIDError) Error() string {
	return fmt.Sprintf("node id %q is held by process %d on host %q, last heard of at %s",
		e.NodeID, e.PID, e.Hostname, e.LastHeartbeat.UTC().Format(time.RFC3339))
}

// Store reads and writes forge_nodes.
type Store struct{ db postgres.DB }

// New returns the store of a database. Of a transaction, it is the store in the
// transaction.
func New(db postgres.DB) *Store { return &Store{db} }

// Recorded returns every node that ever joined, ordered by node id, including dead
// nodes and nodes that left, with the recorded state.
func (s *Store) Recorded(ctx context.Context) ([]Node, error) {
	nodes, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (Node, error) { return scan(row) }, listSQL)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return nodes, nil
}

// List returns the same nodes as Recorded with the state that readers see: a node
// that is silent for too long is dead, even if this is not recorded.
func (s *Store) List(ctx context.Context) ([]Node, error) {
	nodes, err := s.Recorded(ctx)
	for i := range nodes {
		nodes[i].State = nodes[i].Observed
	}
	return nodes, err
}

// Get returns a node by id with the state that readers see, or ErrNotFound.
func (s *Store) Get(ctx context.Context, nodeID string) (Node, error) {
	node, err := scan(s.db.QueryRow(ctx, getSQL, nodeID))
	if errors.Is(err, pgx.ErrNoRows) {
		return Node{}, fmt.Errorf("get node %q: %w", nodeID, ErrNotFound)
	}
	if err != nil {
		return Node{}, fmt.Errorf("get node %q: %w", nodeID, err)
	}
	node.State = node.Observed
	return node, nil
}

// Alive returns the nodes that are not fenced and have not left, with the signals
// that Liveness.Dead evaluates.
func (s *Store) Alive(ctx context.Context) ([]Liveness, error) {
	rows, err := s.db.Query(ctx, aliveSQL, lockClass())
	if err != nil {
		return nil, fmt.Errorf("read which nodes are alive: %w", err)
	}
	return collectAlive(rows)
}

// QueueAlive adds the query of Alive to a batch.
func QueueAlive(batch *pgx.Batch, read func(alive []Liveness)) {
	batch.Queue(aliveSQL, lockClass()).Query(func(rows pgx.Rows) error {
		alive, err := collectAlive(rows)
		if err == nil {
			read(alive)
		}
		return err
	})
}

func collectAlive(rows pgx.Rows) ([]Liveness, error) {
	alive, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Liveness, error) { return scanLiveness(row) })
	if err != nil {
		return nil, fmt.Errorf("read which nodes are alive: %w", err)
	}
	return alive, nil
}

// Register makes node the holder of its node id and appends node_joined. It fails
// with a *DuplicateIDError while a process of another incarnation holds the id and
// is not dead by policy, and with ErrFenced if this incarnation was fenced before.
func (s *Store) Register(ctx context.Context, node Node, policy Policy) error {
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if err := claimRow(ctx, tx, node, policy); err != nil {
			return err
		}
		return announce(ctx, tx, node.NodeID, eventstore.NodeJoined, map[string]any{
			"incarnation": node.Incarnation, "hostname": node.Hostname, "pid": node.PID, "version": node.Version,
		})
	})
	if err != nil {
		return fmt.Errorf("register node %q: %w", node.NodeID, err)
	}
	return nil
}

func claimRow(ctx context.Context, tx pgx.Tx, node Node, policy Policy) error {
	tag, err := tx.Exec(ctx, insertSQL, rowOf(node, policy)...)
	if err != nil || tag.RowsAffected() == 1 {
		return err
	}
	holder, err := scanLiveness(tx.QueryRow(ctx, lockRowSQL, lockClass(), node.NodeID))
	if err != nil {
		return err
	}
	if err := checkReplace(holder, node.Incarnation, policy); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, replaceSQL, rowOf(node, policy)...)
	return err
}

// Heartbeat records that the node is alive and how many jobs it runs, and returns
// the state of its row: an operator may have set it to draining. ErrFenced means
// that the process must stop.
func (s *Store) Heartbeat(ctx context.Context, nodeID, incarnation string, running int) (state string, err error) {
	err = s.db.QueryRow(ctx, heartbeatSQL, nodeID, incarnation, running).Scan(&state)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("heartbeat of node %q: %w", nodeID, ErrFenced)
	}
	if err != nil {
		return "", fmt.Errorf("heartbeat of node %q: %w", nodeID, err)
	}
	return state, nil
}

// SetState sets the node to Active, Draining or Left, and appends node_left for
// Left. It returns ErrFenced when the incarnation no longer holds the id.
func (s *Store) SetState(ctx context.Context, nodeID, incarnation, state string) error {
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, setStateSQL, nodeID, incarnation, state)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return ErrFenced
		}
		if state == Left {
			return announceGone(ctx, tx, nodeID, eventstore.NodeLeft, incarnation)
		}
		return wake(ctx, tx, nodeID)
	})
	if err != nil {
		return fmt.Errorf("set node %q %s: %w", nodeID, state, err)
	}
	return nil
}

// Fence marks an incarnation as dead and appends node_dead. Once that has committed,
// the incarnation can neither send heartbeats nor claim jobs. It returns false if
// there was nothing to fence. The store must be that of a transaction.
func (s *Store) Fence(ctx context.Context, incarnation string) (bool, error) {
	var nodeID string
	err := s.db.QueryRow(ctx, fenceSQL, incarnation).Scan(&nodeID)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err == nil {
		err = announceGone(ctx, s.db, nodeID, eventstore.NodeDead, incarnation)
	}
	if err != nil {
		return false, fmt.Errorf("fence incarnation %s: %w", incarnation, err)
	}
	return true, nil
}

// Admit returns ErrFenced if the incarnation is not, or no longer, a node.
func (s *Store) Admit(ctx context.Context, incarnation string) error {
	var admitted bool
	err := s.db.QueryRow(ctx, admittedSQL, incarnation).Scan(&admitted)
	if err == nil && !admitted {
		return ErrFenced
	}
	return err
}

// announceGone also makes the other nodes check whether one of them has to become a
// deputy.
func announceGone(ctx context.Context, tx postgres.DB, nodeID, event, incarnation string) error {
	if err := announce(ctx, tx, nodeID, event, map[string]any{"incarnation": incarnation}); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, notifySQL, wire.LeaderChannel, "")
	return err
}

// announce appends an event, evaluates the cluster's health and notifies the
// subscribers of NodeChannel.
func announce(ctx context.Context, tx postgres.DB, nodeID, event string, data map[string]any) error {
	if err := eventstore.New(tx).Append(ctx, eventstore.Event{Type: event, NodeID: nodeID}, data); err != nil {
		return err
	}
	if _, err := eventstore.New(tx).EvaluateHealth(ctx); err != nil {
		return err
	}
	return wake(ctx, tx, nodeID)
}

func wake(ctx context.Context, tx postgres.DB, nodeID string) error {
	_, err := tx.Exec(ctx, notifySQL, wire.NodeChannel, nodeID)
	return err
}
