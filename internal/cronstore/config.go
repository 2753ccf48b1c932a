package cronstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// Config is a version of the cluster's sections of forge.toml.
type Config struct {
	Hash      string          `json:"hash"`
	AppliedAt time.Time       `json:"applied_at"`
	AppliedBy string          `json:"applied_by"`
	Cluster   string          `json:"cluster,omitempty"`
	Body      json.RawMessage `json:"body,omitempty"`
}

// The body may be large and rarely changes. A caller that has it reads only the
// other columns.
const inForceUnlessSQL = `
SELECT hash, applied_at, applied_by, cluster, CASE WHEN hash = $1 THEN NULL ELSE body END
FROM forge_config
ORDER BY applied_at DESC
LIMIT 1`

const bodiesSQL = `
SELECT hash, applied_at, applied_by, cluster, body FROM forge_config WHERE hash = ANY ($1)`

const hashInForceSQL = `SELECT hash FROM forge_config ORDER BY applied_at DESC LIMIT 1`

// HashInForce returns the hash of the configuration in force, empty if none was
// ever applied. It does not read the configuration.
func (s *Store) HashInForce(ctx context.Context) (string, error) {
	hashes, err := postgres.Collect(ctx, s.db, pgx.RowTo[string], hashInForceSQL)
	if err != nil {
		return "", fmt.Errorf("get the hash of the configuration in force: %w", err)
	}
	if len(hashes) == 0 {
		return "", nil
	}
	return hashes[0], nil
}

// ConfigInForce returns the configuration in force, or ErrNotFound if none was ever
// applied.
func (s *Store) ConfigInForce(ctx context.Context) (Config, error) {
	inForce, err := s.ConfigInForceUnless(ctx, "")
	if err == nil && inForce.Hash == "" {
		err = fmt.Errorf("configuration in force: %w", ErrNotFound)
	}
	return inForce, err
}

// ConfigInForceUnless returns the configuration in force, without its body if it
// has the given hash. It returns the zero Config if none was ever applied.
func (s *Store) ConfigInForceUnless(ctx context.Context, hash string) (Config, error) {
	configs, err := postgres.Collect(ctx, s.db, scanConfig, inForceUnlessSQL, hash)
	if err != nil {
		return Config{}, fmt.Errorf("get the configuration in force: %w", err)
	}
	if len(configs) == 0 {
		return Config{}, nil
	}
	return configs[0], nil
}

const sectionSQL = `
SELECT jsonb_build_object($1::text, body -> $1::text)
FROM forge_config
ORDER BY applied_at DESC
LIMIT 1`

// SectionInForce returns one section of the configuration in force, as an object
// with only that section; nil if none was ever applied.
func (s *Store) SectionInForce(ctx context.Context, section string) (json.RawMessage, error) {
	sections, err := postgres.Collect(ctx, s.db, pgx.RowTo[json.RawMessage], sectionSQL, section)
	if err != nil {
		return nil, fmt.Errorf("get %s of the configuration in force: %w", section, err)
	}
	if len(sections) == 0 {
		return nil, nil
	}
	return sections[0], nil
}

// ConfigBodies returns the cluster's sections of the configurations with these
// hashes that were ever applied, by hash.
func (s *Store) ConfigBodies(ctx context.Context, hashes []string) (map[string]json.RawMessage, error) {
	configs, err := postgres.Collect(ctx, s.db, scanConfig, bodiesSQL, hashes)
	if err != nil {
		return nil, fmt.Errorf("get configurations: %w", err)
	}
	bodies := make(map[string]json.RawMessage, len(configs))
	for _, c := range configs {
		bodies[c.Hash] = c.Body
	}
	return bodies, nil
}

func scanConfig(row pgx.CollectableRow) (Config, error) {
	var c Config
	err := row.Scan(&c.Hash, &c.AppliedAt, &c.AppliedBy, &c.Cluster, &c.Body)
	return c, err
}

// Drifts returns the hash of the configuration in force and, for each of the other
// hashes, what its configuration would change. Hashes that were never applied are
// left out.
func (s *Store) Drifts(ctx context.Context, hashes []string) (applied string, drifts map[string]config.Diff, err error) {
	inForce, err := s.ConfigInForceUnless(ctx, "")
	if err != nil {
		return "", nil, err
	}
	hashes = slices.DeleteFunc(slices.Clone(hashes), func(hash string) bool { return hash == inForce.Hash || hash == "" })
	if len(hashes) == 0 {
		return inForce.Hash, nil, nil
	}
	bodies, err := s.ConfigBodies(ctx, hashes)
	if err != nil {
		return "", nil, err
	}
	drifts = make(map[string]config.Diff, len(bodies))
	var errs []error
	for hash, body := range bodies {
		diff, err := config.Compare(inForce.Body, body)
		if err != nil {
			errs = append(errs, fmt.Errorf("configuration %s: %w", hash, err))
		}
		drifts[hash] = diff
	}
	return inForce.Hash, drifts, errors.Join(errs...)
}
