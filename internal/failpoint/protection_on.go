//go:build failpoints

package failpoint

import (
	"os"
	"slices"
	"strings"
	"sync"
)

// EnvOff names the environment variable that lists the protections to do without.
const EnvOff = "FORGE_FAILPOINTS_OFF"

var missing = sync.OnceValue(func() []string { return strings.Split(os.Getenv(EnvOff), ",") })

// Off says whether to do without a protection, to see what it is for: without
// leaderstore/fence every term may write, and without crons/cancel a round of the
// scheduler does not hear that the term is over.
func Off(protection string) bool { return slices.Contains(missing(), protection) }
