package jobstore

import (
	"context"
	"fmt"
)

// WeightError reports a weight with which a job would never start.
type WeightError struct {
	// Of is the queue or kind whose rate has at most Most units at once.
	Of           string
	Weight, Most int
}

func (e WeightError) Error() string {
	return fmt.Sprintf("weight %d: more units than the rate_limit of %s ever has at once; want at most %d", e.Weight, e.Of, e.Most)
}

// CheckWeight returns a WeightError if a rate in force never has as many units at once as a job
// of the queue and kind needs. A weight of 0 is that of the kind.
func (s *Store) CheckWeight(ctx context.Context, queue, kind string, weight int) error {
	limits, err := s.Limits(ctx)
	if err != nil {
		return err
	}
	for _, limit := range limits {
		if weight == 0 && limit.Scope == ScopeWeight && limit.Name == kind {
			weight = limit.Most
		}
	}
	names := map[string]string{ScopeQueue: queue, ScopeJob: kind}
	for _, limit := range limits {
		if limit.Class() == ClassRate && limit.Name == names[limit.Scope] && weight > limit.Capacity() {
			return WeightError{Of: limit.Scope + " " + limit.Name, Weight: weight, Most: limit.Capacity()}
		}
	}
	return nil
}
