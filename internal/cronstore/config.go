package cronstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const inForceSQL = `
SELECT hash, applied_at, applied_by, body FROM forge_config ORDER BY applied_at DESC LIMIT 1`

const configsSQL = `
SELECT hash, applied_at, applied_by, NULL::jsonb FROM forge_config ORDER BY applied_at DESC`

// ConfigInForce returns the configuration that was applied last, or ErrNotFound
// if none ever was.
func ConfigInForce(ctx context.Context, db Queryer) (Config, error) {
	configs, err := collect(ctx, db, scanConfig, inForceSQL)
	if err != nil {
		return Config{}, fmt.Errorf("get the configuration in force: %w", err)
	}
	if len(configs) == 0 {
		return Config{}, fmt.Errorf("configuration in force: %w", ErrNotFound)
	}
	return configs[0], nil
}

// Configs returns every configuration that was ever applied, the one in force
// first, without their bodies.
func Configs(ctx context.Context, db Queryer) ([]Config, error) {
	configs, err := collect(ctx, db, scanConfig, configsSQL)
	if err != nil {
		return nil, fmt.Errorf("list configurations: %w", err)
	}
	return configs, nil
}

func scanConfig(row pgx.CollectableRow) (Config, error) {
	var c Config
	err := row.Scan(&c.Hash, &c.AppliedAt, &c.AppliedBy, &c.Body)
	return c, err
}
