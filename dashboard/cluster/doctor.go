package cluster

import (
	"context"
	"time"
)

// Finding is the result of one check of the doctor.
type Finding struct {
	Check string `json:"check"`
	// Status is ok, warn or fail.
	Status string `json:"status"`
	// Detail describes the result.
	Detail string `json:"detail"`
	// Remedy says how to fix the problem; empty if there is none.
	Remedy string `json:"remedy,omitempty"`
}

const (
	// DoctorTimeout bounds the checks, some of which wait for servers that do not answer.
	DoctorTimeout = 30 * time.Second
	// keepFindings is how long pages share the results of the checks, checkTimeout how long
	// a page waits for them.
	keepFindings = 30 * time.Second
	checkTimeout = 2 * time.Second
)

// newFindings returns the cache of the results that pages show. Pages share one run, because a
// run opens connections.
func (s *Cluster) newFindings() *Cache[[]Finding] {
	return &Cache[[]Finding]{
		keep: keepFindings, timeout: checkTimeout, lifetime: s.Lifetime,
		read: func(ctx context.Context) ([]Finding, error) {
			ctx, cancel := context.WithTimeout(ctx, DoctorTimeout)
			defer cancel()
			return s.Doctor(ctx)
		},
		failed: func(ctx context.Context, err error) { s.Logger.WarnContext(ctx, "check the cluster", "error", err) },
	}
}
