package activity

import (
	"encoding/json"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/eventstore"
)

// actionEvents are the types of the events that actions of the audit log write.
var actionEvents = map[string][]string{
	"cron.pause":       {eventstore.CronPaused},
	"cron.resume":      {eventstore.CronResumed},
	"cron.undo":        {eventstore.CronPaused, eventstore.CronResumed},
	"cron.trigger":     {eventstore.CronTriggered},
	"cron.backfill":    {eventstore.CronBackfilled},
	"job.cancel":       {eventstore.JobCancelled},
	"job.retry":        {eventstore.JobRetried},
	"job.discard":      {eventstore.JobDiscarded},
	"job.enqueue":      {eventstore.JobEnqueued},
	"dead.retry":       {eventstore.JobRetried},
	"dead.discard":     {eventstore.DeadLettersDiscarded},
	"queue.pause":      {eventstore.QueuePaused},
	"queue.resume":     {eventstore.QueueResumed},
	"leader.step-down": {eventstore.HandOverAsked},
	"leader.transfer":  {eventstore.HandOverAsked},
	"node.drain":       {eventstore.NodeDrained},
	"node.undrain":     {eventstore.NodeUndrained},
	"alerts.silence":   {eventstore.AlertSilenced},
	"alerts.unsilence": {eventstore.AlertUnsilenced},
	"alerts.test":      {eventstore.AlertTried},
}

// foldedEvents are the types of events that actions write.
var foldedEvents = func() map[string]bool {
	types := map[string]bool{}
	for _, events := range actionEvents {
		for _, event := range events {
			types[event] = true
		}
	}
	return types
}()

// longestAction is how long after its action began an event belongs to it.
const longestAction = 10 * time.Second

// many is the subject of actions that select what they change by a filter or by several names.
const many = "\x00many"

// subject identifies what an action does: to the action it is what it names, to the event what
// it reports.
type subject struct{ event, actor, name string }

// twinsIn returns the completed actions of the audit log whose events are among the entries too,
// by their ids. An event is that of the last action before it with the same subject.
func twinsIn(oldestFirst iter.Seq[*Entry]) map[int64]bool {
	twins, open := map[int64]bool{}, map[subject][]*Entry{}
	for e := range oldestFirst {
		if e.Log == Audit {
			for _, of := range e.actionSubjects() {
				open[of] = append(open[of], e)
			}
			continue
		}
		for _, of := range e.eventSubjects() {
			if action := takeLast(open, of, e.At, twins); action != nil {
				twins[action.ID] = true
				break
			}
		}
	}
	return twins
}

// takeLast removes the last action of a subject from those that await their events, and returns
// it; nil if there is none that began recently.
func takeLast(open map[subject][]*Entry, of subject, at time.Time, twins map[int64]bool) *Entry {
	for actions := open[of]; len(actions) > 0; actions = open[of] {
		last := actions[len(actions)-1]
		open[of] = actions[:len(actions)-1]
		switch {
		case at.Sub(last.At) > longestAction:
			delete(open, of) // the others are older
			return nil
		case !twins[last.ID]:
			return last
		}
	}
	return nil
}

// awaitsEvent reports whether an action may still write an event.
func (e *Entry) awaitsEvent() bool {
	return e.Log == Audit && e.Outcome == access.Begun && actionEvents[e.Type] != nil
}

// actionSubjects returns the subjects of the event of a completed action. The object of an action
// may have further arguments after its name, which may contain blanks.
func (e *Entry) actionSubjects() (subjects []subject) {
	events := actionEvents[e.Type]
	if e.Outcome != access.Done || events == nil {
		return nil
	}
	var names []string
	for i, c := range e.Object + " " {
		if c == ' ' && i > 0 {
			names = append(names, e.Object[:i])
		}
	}
	if i := strings.LastIndex(e.Detail, "job "); i >= 0 && e.Object == "" && e.Type == "job.enqueue" {
		names = append(names, e.Detail[i:])
	}
	operation := e.Type == "cron.undo" || strings.HasPrefix(e.Type, "dead.") // the object is one, or a group
	if e.Object == "" || operation || len(names) > 1 || strings.HasPrefix(e.Object, "--") {
		names = append(names, many)
	}
	for _, event := range events {
		for _, name := range names {
			subjects = append(subjects, subject{event, e.By, name})
		}
	}
	return subjects
}

// eventSubjects returns the subjects of an event that an action may have written, the most
// specific one first.
func (e *Entry) eventSubjects() (subjects []subject) {
	var told struct {
		Cron, Queue, Alert, Kind string
		ID                       int64
		IDs                      []int64
	}
	if !foldedEvents[e.Type] || json.Unmarshal(e.Data, &told) != nil {
		return nil
	}
	var names []string
	switch e.Type {
	case eventstore.JobEnqueued:
		names = []string{"job " + strconv.FormatInt(told.ID, 10), told.Kind}
	case eventstore.JobCancelled, eventstore.JobRetried, eventstore.JobDiscarded, eventstore.DeadLettersDiscarded:
		if len(told.IDs) == 1 {
			names = append(names, strconv.FormatInt(told.IDs[0], 10))
		}
		names = append(names, many)
	case eventstore.CronPaused, eventstore.CronResumed:
		names = []string{told.Cron, many}
	case eventstore.CronTriggered, eventstore.CronBackfilled:
		names = []string{told.Cron}
	case eventstore.QueuePaused, eventstore.QueueResumed:
		names = []string{told.Queue}
	case eventstore.HandOverAsked:
		names = []string{e.Role}
	case eventstore.NodeDrained, eventstore.NodeUndrained:
		names = []string{e.NodeID}
	default:
		names = []string{told.Alert}
	}
	for _, name := range names {
		if name != "" {
			subjects = append(subjects, subject{e.Type, actorOf(e.By), name})
		}
	}
	return subjects
}

// actorOf returns the actor of the author of an event, who is "NAME through the API from ADDRESS",
// "the API from ADDRESS" or "USER@HOST".
func actorOf(by string) string {
	if name, _, ok := strings.Cut(by, " through "); ok {
		return name
	}
	if i := strings.LastIndex(by, "@"); i >= 0 {
		return "cli:" + by[:i]
	}
	return anonymous
}

// anonymous is the actor of requests without a token.
const anonymous = "anonymous"
