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

// AutoNamespace leaves it to the database which ids the locks have: those of another
// schema than public are moved by a number of that schema's own.
const AutoNamespace = -1

// MaxNamespace is the highest cluster.lock_namespace: seven bits, so that ids
// stay positive.
const MaxNamespace = 127

// LockID returns the advisory lock id of a built-in role, moved by the
// cluster's lock namespace.
func (r Role) LockID(namespace int) (int64, error) {
	if err := checkNamespace(namespace); err != nil {
		return 0, err
	}
	for i, role := range All() {
		if role == r {
			return firstLockID + int64(i) + shift(namespace), nil
		}
	}
	return 0, fmt.Errorf("role %q has no lock id", r)
}

func checkNamespace(namespace int) error {
	if namespace < AutoNamespace || namespace > MaxNamespace {
		return fmt.Errorf("lock namespace %d: want %d to %d", namespace, AutoNamespace, MaxNamespace)
	}
	return nil
}

// shift is by how much a namespace moves the ids.
func shift(namespace int) int64 { return int64(max(namespace, 0)) << namespaceShift }
