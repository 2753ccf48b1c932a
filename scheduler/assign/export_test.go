package assign

import (
	"log/slog"
	"time"
)

// Await makes an assigner wait longer for the claim of what it has offered.
func Await(a *Assigner, timeout time.Duration) { a.offerTimeout = timeout }

// LogTo makes an assigner log to another logger.
func LogTo(a *Assigner, logger *slog.Logger) { a.logger = logger }
