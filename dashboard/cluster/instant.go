package cluster

import (
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/dashboard/web"
)

// clockSkew is how far the clock of a reader may be ahead of the database's.
const clockSkew = time.Minute

// CheckPast refuses an instant in the parameter key that is missing or after now.
func CheckPast(key string, at, now time.Time) error {
	switch {
	case at.IsZero():
		return web.BadRequest(fmt.Errorf("%s: found nothing, want an instant such as 2026-11-20T02:00:00Z", key))
	case at.After(now.Add(clockSkew)):
		return web.BadRequest(fmt.Errorf("%s: found %s, want an instant that is not after now", key, at.UTC().Format(time.RFC3339)))
	default:
		return nil
	}
}
