package roles

import "fmt"

// Role is a duty that one node of the cluster leads at a time.
type Role string

// The roles that every cluster has.
const (
	Scheduler         Role = "scheduler"
	MetricsAggregator Role = "metrics_aggregator"
	LogCompactor      Role = "log_compactor"
)

// All lists the cluster's roles in the order in which they are shown.
func All() []Role { return []Role{Scheduler, MetricsAggregator, LogCompactor} }

// firstLockID is "FORGE" followed by a 16-bit counter.
const firstLockID int64 = 0x464F524745_0001

// namespaceShift places cluster.lock_namespace above the 56 bits of the ids.
const namespaceShift = 56

// MaxNamespace is the highest cluster.lock_namespace: seven bits, so that ids
// stay positive.
const MaxNamespace = 127

// LockID returns the advisory lock id of a built-in role, moved by the
// cluster's lock namespace.
func (r Role) LockID(namespace int) (int64, error) {
	if namespace < 0 || namespace > MaxNamespace {
		return 0, fmt.Errorf("lock namespace %d: want 0 to %d", namespace, MaxNamespace)
	}
	for i, role := range All() {
		if role == r {
			return firstLockID + int64(i) + int64(namespace)<<namespaceShift, nil
		}
	}
	return 0, fmt.Errorf("role %q has no lock id", r)
}
