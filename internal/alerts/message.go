package alerts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// ErrUnknown means that no receiver of that name is configured on this node.
var ErrUnknown = errors.New("not configured on this node")

// ErrRefused means that a receiver refused the message and would refuse it again.
var ErrRefused = errors.New("refused")

// ErrUnwanted means that a message was not sent: it has only resolved occurrences, or nothing
// new beside them, and the receiver has send_resolved = false.
var ErrUnwanted = errors.New("not sent: send_resolved is false")

// RetryAfterError is the error of a receiver that asks for a wait before the next attempt.
type RetryAfterError struct {
	After time.Duration
	Err   error
}

func (e *RetryAfterError) Error() string { return e.Err.Error() }

// Unwrap returns the error without the wait.
func (e *RetryAfterError) Unwrap() error { return e.Err }

// Sender sends a message to a target, once. The error is ErrUnknown, ErrUnwanted,
// ErrRefused, or one after which another attempt may succeed, such as a RetryAfterError.
// Send returns soon after ctx ends.
type Sender interface {
	Send(ctx context.Context, target string, m Message) error
}

// Message is a message to receivers.
type Message struct {
	// Key is the same for every attempt, so that a receiver can recognize a repetition.
	Key string
	// At is the time of the event.
	At time.Time
	// Labels identify the subject, beginning with alertname.
	Labels map[string]string
	// Summary is one line, Description the full text.
	Summary, Description string
	// Annotations are further texts about a failed run.
	Annotations map[string]string
	// URL is the page about the subject.
	URL string
	// Occurrences are the occurrences of an alert, with labels and annotations of their own.
	Occurrences []OccurrenceFacts
	// Ended reports that occurrences have been resolved and that none has begun to fire since
	// the last message.
	Ended bool
}

// OccurrenceFacts are the data of an occurrence in a message.
type OccurrenceFacts struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
	StartsAt    time.Time         `json:"starts_at"`
	// EndsAt is zero while the occurrence is open.
	EndsAt time.Time `json:"ends_at,omitzero"`
}

// AlertMessage returns the message about occurrences of an alert. Its key is the same for
// all messages about the alert, so that the message about the end closes what the first
// one opened.
func AlertMessage(alert string, at time.Time, occurrences []OccurrenceFacts) Message {
	return Message{
		Key: "alert " + alert, At: at, Labels: map[string]string{model.AlertNameLabel: alert}, Occurrences: occurrences,
	}
}

// TestOccurrence returns the occurrence of a test notification.
func TestOccurrence(rule Rule, at time.Time, by string) OccurrenceFacts {
	return OccurrenceFacts{
		Labels: map[string]string{"alertname": rule.Name, "severity": rule.Severity, "test": "true"},
		Annotations: map[string]string{
			"summary":     "Test of the alert " + rule.Name,
			"description": "Nothing is wrong: " + by + " tries who is told. The condition is " + rule.Condition + ".",
		},
		StartsAt: at,
	}
}

// describe returns the message about a failed run. The key is the same for every attempt.
func describe(n Notification) Message {
	if n.Alert != "" {
		m := AlertMessage(n.Alert, n.CreatedAt, n.Facts.Alerts)
		m.Ended = n.Facts.Ended
		return m
	}
	tick := n.Tick.UTC().Format(time.RFC3339Nano)
	m := Message{
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

// Annotations of messages about a cron, named as those of alert rules usually are.
const (
	ownerAnnotation   = "owner"
	runbookAnnotation = "runbook_url"
)

// cronsOf returns the crons that notifications are about.
func cronsOf(notifications []Notification) []string {
	var names []string
	for _, n := range notifications {
		if n.Cron != "" {
			names = append(names, n.Cron)
		}
		for _, occurrence := range n.Facts.Alerts {
			if cron := occurrence.Labels["cron"]; cron != "" {
				names = append(names, cron)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// annotate adds the owners and runbooks of the crons that a message is about. Annotations of an
// alert's own stay.
func annotate(m Message, contacts map[string]map[string]string) Message {
	m.Annotations = contacts[m.Labels["cron"]]
	m.Occurrences = slices.Clone(m.Occurrences)
	for i, occurrence := range m.Occurrences {
		annotations := maps.Clone(contacts[occurrence.Labels["cron"]])
		if annotations == nil {
			continue
		}
		maps.Copy(annotations, occurrence.Annotations)
		m.Occurrences[i].Annotations = annotations
	}
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
		case NotificationDelivered:
			parts = append(parts, n.Target+" was told at "+n.DoneAt.UTC().Format(time.RFC3339))
		case NotificationFailed:
			parts = append(parts, fmt.Sprintf("%s could not be told in %s (%s)", n.Target, tries(n.Attempts), n.Error))
		case NotificationSuperseded:
			parts = append(parts, n.Target+" was told of a later state instead")
		case NotificationPending:
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
