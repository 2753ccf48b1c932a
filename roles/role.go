package roles

import "fmt"

// Role names work that one node of the cluster, its leader, does at a time.
type Role string

// The roles that every cluster has.
const (
	Scheduler         Role = "scheduler"
	MetricsAggregator Role = "metrics_aggregator"
	LogCompactor      Role = "log_compactor"
)

// All lists the built-in roles in display order.
func All() []Role { return []Role{Scheduler, MetricsAggregator, LogCompactor} }

// firstLockID is "FORGE" followed by a 16-bit counter.
const firstLockID int64 = 0x464F524745_0001

// namespaceShift moves cluster.lock_namespace above the 56 bits of the lock ids.
const namespaceShift = 56

// AutoNamespace lets the database choose the lock ids: a schema other than public moves
// them by a number of its own.
const AutoNamespace = -1

// MaxNamespace is the highest cluster.lock_namespace. Its seven bits keep the ids positive.
const MaxNamespace = 127

// LockID returns the advisory lock id of a built-in role in the lock namespace.
func (r Role) LockID(namespace int) (int64, error) {
	if err := checkNamespace(namespace); err != nil {
		return 0, err
	}
	for i, role := range All() {
		if role == r {
			return firstLockID + int64(i) + namespaceOffset(namespace), nil
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

// namespaceOffset returns the offset of a namespace's lock ids.
func namespaceOffset(namespace int) int64 { return int64(max(namespace, 0)) << namespaceShift }
