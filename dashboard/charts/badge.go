package charts

import (
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// Badge describes a state with words, a tone and an icon: colour is never the only sign.
type Badge struct {
	Words string
	Tone  string
	Icon  string
}

// BadgeOf describes the state of a job.
func BadgeOf(state string) Badge {
	switch state {
	case "completed":
		return Badge{"completed", "ok", "check"}
	case "running":
		return Badge{"running", "live", "play"}
	case "available":
		return Badge{"available", "wait", "dot"}
	case "pending", "scheduled":
		return Badge{state, "wait", "clock"}
	case "retryable":
		return Badge{"retryable", "warn", "retry"}
	case "cancelled":
		return Badge{"cancelled", "idle", "stop"}
	case "discarded":
		return Badge{"discarded", "bad", "cross"}
	default:
		return Badge{Words: state, Tone: "idle", Icon: "dot"}
	}
}

// OutcomeBadge describes the outcome of an attempt.
func OutcomeBadge(outcome string) Badge {
	switch outcome {
	case "":
		return BadgeOf("running")
	case jobstore.OutcomeFailed:
		return Badge{"failed", "bad", "cross"}
	case jobstore.OutcomeTimedOut:
		return Badge{"timed out", "bad", "clock"}
	case jobstore.OutcomeLost:
		return Badge{"node lost", "warn", "retry"}
	case jobstore.OutcomeInterrupted:
		return Badge{"interrupted", "idle", "stop"}
	case jobstore.OutcomeSnoozed:
		return Badge{"snoozed", "wait", "clock"}
	default:
		return BadgeOf(outcome) // an outcome that is also a job state
	}
}
