package assign

import (
	"log/slog"
	"time"
)

// SetOfferTimeout sets how long an assigner waits for the claim of an offer.
func SetOfferTimeout(a *Assigner, timeout time.Duration) { a.offerTimeout = timeout }

// LogTo sets the logger of an assigner.
func LogTo(a *Assigner, logger *slog.Logger) { a.logger = logger }

// SetCheapBelow sets how long a check below the marks may take while scans do not start at
// the marks.
func SetCheapBelow(a *Assigner, limit time.Duration) { a.cheapBelow = limit }

// SetRecoverAfter sets for how long no job of a starving group must have been read.
func SetRecoverAfter(a *Assigner, after time.Duration) { a.recoverAfter = after }
