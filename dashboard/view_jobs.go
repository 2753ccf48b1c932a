package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// badge describes a state with words, a tone and an icon: colour is never the only sign.
type badge struct {
	Words string
	Tone  string
	Icon  string
}

func badgeOf(state string) badge {
	switch state {
	case "completed":
		return badge{"completed", "ok", "check"}
	case "running":
		return badge{"running", "live", "play"}
	case "available":
		return badge{"available", "wait", "dot"}
	case "pending", "scheduled":
		return badge{state, "wait", "clock"}
	case "retryable":
		return badge{"retryable", "warn", "retry"}
	case "cancelled":
		return badge{"cancelled", "idle", "stop"}
	case "discarded":
		return badge{"discarded", "bad", "cross"}
	default:
		return badge{Words: state, Tone: "idle", Icon: "dot"}
	}
}

func outcomeBadge(outcome string) badge {
	switch outcome {
	case "":
		return badgeOf("running")
	case jobstore.OutcomeFailed:
		return badge{"failed", "bad", "cross"}
	case jobstore.OutcomeTimedOut:
		return badge{"timed out", "bad", "clock"}
	case jobstore.OutcomeLost:
		return badge{"node lost", "warn", "retry"}
	case jobstore.OutcomeInterrupted:
		return badge{"interrupted", "idle", "stop"}
	case jobstore.OutcomeSnoozed:
		return badge{"snoozed", "wait", "clock"}
	default:
		return badgeOf(outcome) // an outcome that is also a job state
	}
}

type jobRow struct {
	ID       int64
	Path     string
	State    badge
	Kind     string
	Cron     string
	CronPath string
	Node     nodeName
	Attempt  string
	Duration string
	// Since counts up while the job runs. Duration is then empty.
	Since stamp
	When  stamp
	Error string
	Queue string
	// Note distinguishes this job from others of its kind: its last error, or its
	// arguments.
	Note  string
	Wrong bool
}

func jobRows(now time.Time, jobs []jobstore.Job, colors palette) []jobRow {
	rows := make([]jobRow, 0, len(jobs))
	for _, j := range jobs {
		rows = append(rows, newJobRow(now, j, colors))
	}
	return rows
}

func newJobRow(now time.Time, j jobstore.Job, colors palette) jobRow {
	row := jobRow{
		ID: j.ID, Path: jobPath(j.ID), State: badgeOf(j.State), Kind: j.Kind, Cron: j.Cron, CronPath: cronPath(j.Cron),
		Node: nodeName{j.NodeID, colors.of(j.NodeID)}, Attempt: fmt.Sprintf("%d/%d", j.Attempt, j.MaxAttempts),
		Duration: "–", Error: j.LastError, When: jobWhen(now, j), Queue: j.Queue,
	}
	row.Note, row.Wrong = jobNote(j)
	switch {
	case j.State == "running":
		row.Duration, row.Since = "", newStamp(modeSince, now, j.AttemptedAt)
	case !j.FinalizedAt.IsZero() && !j.AttemptedAt.IsZero():
		row.Duration = precise(j.FinalizedAt.Sub(j.AttemptedAt))
	}
	return row
}

// longestNote bounds a note, in characters.
const longestNote = 100

func jobNote(j jobstore.Job) (text string, wrong bool) {
	text = compactJSON(j.Args)
	if wrong = j.LastError != "" && j.State != "completed"; wrong {
		text, _, _ = strings.Cut(j.LastError, "\n")
	}
	short := []rune(plainText(text[:min(len(text), 8*longestNote)]))
	if len(short) > longestNote {
		short = append(short[:longestNote-1], '…')
	}
	return string(short), wrong
}

// compactJSON returns an empty text for no arguments. It returns truncated JSON unchanged.
func compactJSON(raw json.RawMessage) string {
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return string(raw)
	}
	if out.String() == "{}" {
		return ""
	}
	return out.String()
}

// jobWhen returns the most relevant instant of the job's state: its end, its start, or when
// it is due.
func jobWhen(now time.Time, j jobstore.Job) stamp {
	switch {
	case !j.FinalizedAt.IsZero():
		return newStamp(modeAgo, now, j.FinalizedAt)
	case j.State == "running":
		return newStamp(modeAgo, now, j.AttemptedAt)
	case j.ScheduledAt.After(now):
		return newStamp(modeUntil, now, j.ScheduledAt)
	default:
		return newStamp(modeAgo, now, j.ScheduledAt)
	}
}

type attemptRow struct {
	Attempt  int
	Path     string
	Shown    bool
	Outcome  badge
	Node     nodeName
	Started  stamp
	Duration string
	Code     string
	Output   string
	Error    string
}

func attemptRows(now time.Time, job jobstore.Job, shown int, colors palette) []attemptRow {
	attempts := job.Runs()
	rows := make([]attemptRow, 0, len(attempts))
	for _, a := range attempts {
		row := attemptRow{
			Attempt: a.Attempt, Path: fmt.Sprintf("%s?attempt=%d", jobPath(job.ID), a.Attempt), Shown: a.Attempt == shown,
			Outcome: outcomeBadge(a.Outcome), Node: nodeName{a.NodeID, colors.of(a.NodeID)},
			Started: newStamp(modeAgo, now, a.StartedAt), Duration: millis(a.DurationMS), Code: code(a),
			Output: sizeOf(a), Error: plainText(a.Error),
		}
		if a.Outcome == "" {
			row.Duration, row.Output = coarse(now.Sub(a.StartedAt)), "–" // known when it ends
		}
		rows = append(rows, row)
	}
	return rows
}

func code(a jobstore.Attempt) string {
	switch {
	case a.ExitCode != nil:
		return "exit " + strconv.Itoa(*a.ExitCode)
	case a.StatusCode != nil:
		return "HTTP " + strconv.Itoa(*a.StatusCode)
	default:
		return "–"
	}
}

func sizeOf(a jobstore.Attempt) string {
	text := bytesText(a.OutputBytes)
	if a.DroppedBytes > 0 {
		text += " (" + bytesText(a.DroppedBytes) + " dropped)"
	}
	return text
}

func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f kB", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	}
}
