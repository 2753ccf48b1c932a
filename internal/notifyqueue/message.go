package notifyqueue

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/notify"
)

// describe returns the message about a failed run. The key is the same for every attempt.
func describe(n Notification) notify.Message {
	if n.Alert != "" {
		m := notify.AlertMessage(n.Alert, n.CreatedAt, n.Facts.Alerts)
		m.Ended = n.Facts.Ended
		return m
	}
	tick := n.Tick.UTC().Format(time.RFC3339Nano)
	m := notify.Message{
		Key: "cron " + n.Cron + "@" + tick, At: n.CreatedAt,
		Labels: map[string]string{"alertname": "CronFailed", "cron": n.Cron, "tick": tick},
	}
	if n.Facts.JobID == 0 {
		m.Summary = "Cron " + n.Cron + " could not be fired"
		m.Description = fmt.Sprintf("The tick %s of %s could not be fired: %s", tick, n.Cron, sanitize(n.Facts.Error))
		return m
	}
	m.Labels["job"], m.Labels["job_id"] = n.Facts.Job, strconv.FormatInt(n.Facts.JobID, 10)
	attempts := "its only attempt"
	if n.Facts.Attempts != 1 {
		attempts = fmt.Sprintf("the last of %d attempts", n.Facts.Attempts)
	}
	m.Summary = "Cron " + n.Cron + " failed"
	m.Description = fmt.Sprintf("The run of the tick %s of %s has failed for good: %s of job %d came to %q.",
		tick, n.Cron, attempts, n.Facts.JobID, sanitize(n.Facts.Error))
	return m
}

// sanitize returns an error's text for a message: valid UTF-8 without control characters.
func sanitize(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// StatusSentence returns the state of the notifications of a failure, as part of a
// sentence; empty when there are none.
func StatusSentence(notifications []Notification) string {
	parts := make([]string, 0, len(notifications))
	for _, n := range notifications {
		switch n.State {
		case Delivered:
			parts = append(parts, n.Target+" was told at "+n.DoneAt.UTC().Format(time.RFC3339))
		case Failed:
			parts = append(parts, fmt.Sprintf("%s could not be told in %s (%s)", n.Target, tries(n.Attempts), n.Error))
		case Superseded:
			parts = append(parts, n.Target+" was told of a later state instead")
		case Pending:
			part := n.Target + " is to be told"
			if n.Error != "" {
				part += fmt.Sprintf(" (%s so far: %s)", tries(n.Attempts), n.Error)
			}
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "; ")
}

func tries(n int) string {
	if n == 1 {
		return "1 try"
	}
	return fmt.Sprintf("%d tries", n)
}
