package roles

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
)

var customName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// worker stands in node.roles and is nobody's to lead.
const worker = "worker"

// CheckCustom says why a name cannot be that of a role of one's own.
func CheckCustom(name string) error {
	switch {
	case !customName.MatchString(name):
		return fmt.Errorf("role %q: want a lower-case letter, then at most 62 letters, digits or _", name)
	case name == worker || slices.Contains(All(), Role(name)):
		return fmt.Errorf("role %q is forge's own; want another name", name)
	}
	return nil
}

// customBit is set in the id of every custom role that was given none and in no
// built-in one's.
const customBit = int64(1) << (namespaceShift - 1)

// CustomLockID returns the advisory lock id of a role that is not built in, made
// from its name unless own gives another, moved by the cluster's lock namespace. A
// namespace above 0 moves ids of at most 56 bits.
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
	return id + shift(namespace), nil
}

// Lock returns the advisory lock of any role: with the id own unless that is 0, and
// else the role's, moved by the cluster's lock namespace. Where neither own nor the
// namespace is given, the schema decides.
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

// CheckLocks refuses two roles under one name or on one lock: the lock would
// elect a single leader for both.
func CheckLocks(contests []Contest) error {
	for i, contest := range contests {
		for _, other := range contests[:i] {
			if other.Role == contest.Role {
				return fmt.Errorf("role %s is there twice", contest.Role)
			}
			if other.LockID == contest.LockID {
				return fmt.Errorf("roles %s and %s have the same lock id %d; give one another lock_id", other.Role, contest.Role, contest.LockID)
			}
		}
	}
	return nil
}

// AfterTakeover is the Takeover of a duty that no transaction fences: it begins only
// when its predecessors have stopped, at once where they ended in order, and else delay
// after the lead changed hands. A terminated session frees its lock before its
// process can know.
func AfterTakeover(delay time.Duration, db leaderstore.RowQueryer, logger *slog.Logger) func(context.Context, leaderstore.Fence) bool {
	if delay <= 0 {
		return nil
	}
	return func(ctx context.Context, fence leaderstore.Fence) bool {
		asking, cancel := context.WithTimeout(ctx, progress.Interval(ctx))
		wait, err := fence.TakeoverWait(asking, db, delay)
		cancel()
		logger := logger.With("role", fence.Role, "term", fence.Term)
		if err != nil && ctx.Err() == nil {
			wait = delay
			logger.WarnContext(ctx, "cannot tell how the last leader ended, so waiting in any case", "error", err)
		}
		if wait > 0 {
			logger.InfoContext(ctx, "waiting for what the last leader may have left running", "wait", wait)
		}
		return progress.Sleep(ctx, wait)
	}
}

// Unwatched is a duty that need not report its progress: that its process lives
// is enough. One that begins a part of its own is judged by that.
func Unwatched(duty Duty) Duty {
	return func(ctx context.Context, fence leaderstore.Fence) error {
		progress.Park(ctx)
		return duty(ctx, fence)
	}
}
