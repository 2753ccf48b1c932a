//go:build !failpoints

package failpoint

import "time"

// Off is false in this build: nothing is done without its protection.
func Off(string) bool { return false }

// LocalClock is this machine's clock.
func LocalClock() time.Time { return time.Now() }
