//go:build failpoints

package failpoint

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// EnvOff names the environment variable that lists the protections to do without.
const EnvOff = "FORGE_FAILPOINTS_OFF"

var missing = sync.OnceValue(func() []string { return strings.Split(os.Getenv(EnvOff), ",") })

// EnvAhead names the environment variable that says how far this machine's clock
// is ahead: what the database's clock protects from.
const EnvAhead = "FORGE_FAILPOINTS_AHEAD"

var ahead = sync.OnceValue(func() time.Duration {
	d, err := time.ParseDuration(cmp.Or(os.Getenv(EnvAhead), "0"))
	if err != nil {
		panic(err)
	}
	return d
})

// Off says whether to do without a protection, to see what it is for:
//
//	leaderstore/fence     every term may write
//	crons/cancel          a round of the scheduler does not hear that the term is over
//	crons/catch-up        a new leader begins with the ticks to come
//	crons/database-clock  LocalClock says what is due
//	cronstore/unique-key  a tick may be recorded twice (the key has to go, too)
//	limits/recount        a term counts the running jobs of its own only, as in a memory of its own
//	limits/hung-attempts  the attempts of a node that has been silent for two seconds do not count
//	limits/rate-window    a term does not know what has started of a rate before it
//	assign/turns          a fair queue is read by priority and time
//	jobs/attempt-fence    whoever ran an attempt may finish the job, given up or not
//	jobs/unacknowledged   a node forgets a job that has ended before its result is acknowledged
func Off(protection string) bool { return slices.Contains(missing(), protection) }

// LocalClock is this machine's clock, as far ahead as the environment says.
func LocalClock() time.Time { return time.Now().Add(ahead()) }
