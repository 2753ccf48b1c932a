package cronstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/forge-scheduler/forge/internal/config"
)

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
