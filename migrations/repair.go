package migrations

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// repair brings what an early commit applied to what the present files assume.
// Landed files do not change any more; these few did before that was so.
type repair struct {
	name string
	// needed returns a boolean. It reads the table of applied migrations, which exists.
	needed string
	do     string
}

// repairs run in this order, in one transaction, before any migration.
var repairs = []repair{
	{
		name: "renumber two migrations that were applied as 4 and 5",
		needed: `SELECT EXISTS (SELECT FROM ` + table + ` WHERE version_id = 4 AND is_applied)
			AND NOT EXISTS (SELECT FROM ` + table + ` WHERE version_id = 3 AND is_applied)`,
		do: `UPDATE ` + table + ` SET version_id = version_id - 1 WHERE version_id IN (4, 5)`,
	},
	{
		name: "add the index that migration 4 lacked at first",
		needed: `SELECT EXISTS (SELECT FROM ` + table + ` WHERE version_id = 4 AND is_applied)
			AND NOT EXISTS (SELECT FROM ` + table + ` WHERE version_id = 34 AND is_applied)
			AND to_regclass('forge_cron_ticks_ranges') IS NULL`,
		do: `CREATE INDEX forge_cron_ticks_ranges ON forge_cron_ticks (cron, tick) WHERE last_tick IS NOT NULL`,
	},
	{
		name: "bring the function of migration 1 that deputies wait in to its last definition",
		needed: `SELECT EXISTS (SELECT FROM ` + table + ` WHERE version_id = 1 AND is_applied)
			AND coalesce((SELECT prorettype <> 'timestamptz'::regtype FROM pg_proc
				WHERE oid = to_regprocedure('forge_await_session_end(integer, integer, interval)')), true)`,
		do: `
DROP FUNCTION IF EXISTS forge_await_session_end(integer, integer, interval);
CREATE FUNCTION forge_await_session_end(class integer, object integer, slice interval) RETURNS timestamptz
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', ceil(1000 * extract(epoch FROM slice))::text, true);
    PERFORM pg_advisory_xact_lock_shared(class, object);
    RETURN clock_timestamp();
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL;
END
$$`,
	},
}

// needsRepair reports whether an early commit left something to repair. It only reads.
func (m *Migrator) needsRepair(ctx context.Context) (bool, error) {
	var exists bool
	if err := m.pool.QueryRow(ctx, tableExistsSQL, table).Scan(&exists); err != nil || !exists {
		return false, err
	}
	for _, r := range repairs {
		var needed bool
		if err := m.pool.QueryRow(ctx, r.needed).Scan(&needed); err != nil || needed {
			return needed, err
		}
	}
	return false, nil
}

// repair does what is needed. Each condition is read after the repairs before it.
func (m *Migrator) repair(ctx context.Context) error {
	return pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
		var exists bool
		if err := tx.QueryRow(ctx, tableExistsSQL, table).Scan(&exists); err != nil || !exists {
			return err
		}
		for _, r := range repairs {
			var needed bool
			if err := tx.QueryRow(ctx, r.needed).Scan(&needed); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			if !needed {
				continue
			}
			if _, err := tx.Exec(ctx, r.do); err != nil {
				return m.explain(r.name, err)
			}
			m.logger.InfoContext(ctx, "schema repaired", "source", "forge", "repair", r.name)
		}
		return nil
	})
}
