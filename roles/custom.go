package roles

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"

	"github.com/forge-scheduler/forge/leaderstore"
)

var customName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// worker is allowed in node.roles, but is not a role with a leader.
const worker = "worker"

// CheckCustom returns an error if name cannot name a custom role.
func CheckCustom(name string) error {
	switch {
	case !customName.MatchString(name):
		return fmt.Errorf("role %q: want a lower-case letter, then at most 62 letters, digits or _", name)
	case name == worker || slices.Contains(All(), Role(name)):
		return fmt.Errorf("role %q is built in; want another name", name)
	}
	return nil
}

// customBit is set in the lock id of every custom role without a configured lock id, and in
// no lock id of a built-in role.
const customBit = int64(1) << (namespaceShift - 1)

// CustomLockID returns the advisory lock id of a custom role in the lock namespace. The id
// is own, or derived from the name if own is 0. In a namespace above 0, own has at most 56
// bits.
func CustomLockID(name string, own int64, namespace int) (int64, error) {
	if err := checkNamespace(namespace); err != nil {
		return 0, err
	}
	if namespace > 0 && (own < 0 || own >= 1<<namespaceShift) {
		return 0, fmt.Errorf("lock id %d of role %q in lock namespace %d: want 1 to %d", own, name, namespace, int64(1)<<namespaceShift-1)
	}
	id := own
	if own == 0 {
		sum := sha256.Sum256([]byte(name))
		id = int64(binary.BigEndian.Uint64(sum[:8])&(1<<(namespaceShift-1)-1)) | customBit //nolint:gosec // 55 bits
	}
	return id + namespaceOffset(namespace), nil
}

// Lock returns the advisory lock of any role in the lock namespace. Its id is own, or the
// default of the role if own is 0. If neither own nor a namespace is configured, the schema
// decides.
func Lock(role Role, own int64, namespace int) (leaderstore.Lock, error) {
	lock := leaderstore.Lock{Role: string(role), BySchema: own == 0 && namespace == AutoNamespace}
	var err error
	if own == 0 && slices.Contains(All(), role) {
		lock.ID, err = role.LockID(namespace)
	} else {
		lock.ID, err = CustomLockID(string(role), own, namespace)
	}
	return lock, err
}

// CheckLocks rejects roles with the same name or the same lock: the lock would elect one
// leader for both.
func CheckLocks(configs []RoleConfig) error {
	for i, config := range configs {
		for _, other := range configs[:i] {
			if other.Role == config.Role {
				return fmt.Errorf("role %s is configured twice", config.Role)
			}
			if other.LockID == config.LockID {
				return fmt.Errorf("roles %s and %s have the same lock id %d; give one another lock_id", other.Role, config.Role, config.LockID)
			}
		}
	}
	return nil
}
