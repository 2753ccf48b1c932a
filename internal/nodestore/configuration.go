package nodestore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
)

const reconfigureSQL = `
UPDATE forge_nodes
SET capabilities = $3, tags = $4, kinds = $5, queues = $6, slots = $7, config_hash = $8, definitions = $9,
    config_restart = $10, river_kinds = $11, reserved = $12, config_error = '', config_waiting = ''
WHERE node_id = $1 AND incarnation = $2 AND fenced_at IS NULL`

const rejectConfigSQL = `
UPDATE forge_nodes
SET config_error = $3, config_waiting = ''
WHERE node_id = $1 AND incarnation = $2 AND fenced_at IS NULL`

const holdConfigSQL = `
UPDATE forge_nodes
SET config_waiting = $3, config_error = ''
WHERE node_id = $1 AND incarnation = $2 AND fenced_at IS NULL`

// Reconfigure records the configuration that a running node has applied from its
// edited file, and appends config_reloaded. It notifies the scheduler's leader. It
// returns ErrFenced when the incarnation no longer holds the id.
func (s *Store) Reconfigure(ctx context.Context, n Node) error {
	return s.configure(ctx, n, eventstore.ConfigReloaded,
		map[string]any{"hash": n.ConfigHash, "needs_restart": orEmptyList(n.ConfigRestart)},
		reconfigureSQL, n.NodeID, n.Incarnation, orEmptyList(n.Capabilities), orEmpty(n.Tags), orEmptyList(n.Kinds), orEmpty(n.Queues),
		n.Slots, n.ConfigHash, orEmpty(n.Definitions), orEmptyList(n.ConfigRestart), orEmpty(n.RiverKinds), orEmpty(n.Reserved))
}

// RejectConfig records why a node did not apply its edited file, and appends
// config_rejected with all problems. It returns ErrFenced as Reconfigure does.
func (s *Store) RejectConfig(ctx context.Context, n Node, reason string, problems []string) error {
	return s.configure(ctx, n, eventstore.ConfigRejected,
		map[string]any{"reason": reason, "problems": orEmptyList(problems)},
		rejectConfigSQL, n.NodeID, n.Incarnation, reason)
}

// HoldConfig records why a node's file waits for confirmation by an operator, and
// appends config_rejected. It returns ErrFenced as Reconfigure does.
func (s *Store) HoldConfig(ctx context.Context, n Node, reason string) error {
	return s.configure(ctx, n, eventstore.ConfigRejected,
		map[string]any{"reason": reason, "waits_for": "forge apply --yes", "problems": []string{}},
		holdConfigSQL, n.NodeID, n.Incarnation, reason)
}

const releaseConfigSQL = `
UPDATE forge_nodes
SET config_waiting = ''
WHERE node_id = $1 AND incarnation = $2 AND config_waiting <> ''`

// ReleaseConfig records that a node's file no longer waits.
func (s *Store) ReleaseConfig(ctx context.Context, n Node) error {
	if _, err := s.db.Exec(ctx, releaseConfigSQL, n.NodeID, n.Incarnation); err != nil {
		return fmt.Errorf("record the configuration of node %q: %w", n.NodeID, err)
	}
	return nil
}

func (s *Store) configure(ctx context.Context, n Node, event string, data map[string]any, sql string, args ...any) error {
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sql, args...)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return ErrFenced
		}
		return announce(ctx, tx, n.NodeID, event, data)
	})
	if err != nil {
		return fmt.Errorf("record the configuration of node %q: %w", n.NodeID, err)
	}
	return nil
}
