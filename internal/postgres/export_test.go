package postgres

import "time"

// SetTimeouts makes a notifier detect a dead connection sooner.
func SetTimeouts(h *Notifier, ping, answer time.Duration) {
	h.pingInterval, h.answerTimeout = ping, answer
}

// SetPollInterval sets an interval beyond the maximum.
func SetPollInterval(h *Notifier, interval time.Duration) { h.pollInterval = interval }
