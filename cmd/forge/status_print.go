package main

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// statusProperties are the lines at the top of forge status.
var statusProperties = []column[clusterStatus]{
	{title: "cluster", show: func(s clusterStatus) string { return s.Cluster + ", " + s.Status + ", " + stamp(s.At) }},
	{title: "database", show: databaseNote},
	{title: "crons", show: func(s clusterStatus) string { return s.Crons.note() }},
	{title: "next", show: func(s clusterStatus) string {
		if s.Crons.Next == nil {
			return "no cron is due"
		}
		return s.Crons.Next.Name + " " + ago(s.Crons.Next.Tick, s.At) + ", at " + tickStamp(s.Crons.Next.Tick)
	}},
	{title: "alerts", show: func(s clusterStatus) string {
		firing := make([]string, len(s.Alerts))
		for i, alert := range s.Alerts {
			firing[i] = alert.Name
		}
		if len(firing) == 0 {
			return "none firing"
		}
		return "firing: " + abridged(firing)
	}},
	{title: "doctor", show: func(s clusterStatus) string { return doctorNote(s.Doctor) }},
}

func databaseNote(s clusterStatus) string {
	d := s.Database
	note := fmt.Sprintf("PostgreSQL %s, %s, schema %s, %s", d.Version, d.Name, d.Schema, humanize.IBytes(uint64(max(d.Bytes, 0)))) //nolint:gosec // not negative
	if d.Replica {
		note += ", a replica"
	}
	return note
}

func (c cronsStatus) note() string {
	note := fmt.Sprintf("%d defined, %d paused", c.Defined, c.Paused)
	if c.Overdue > 0 {
		note += fmt.Sprintf(", %d overdue", c.Overdue)
	}
	if c.Blocked > 0 {
		note += fmt.Sprintf(", %d blocked", c.Blocked)
	}
	failing := len(c.Failing) + c.MoreFailing
	note += fmt.Sprintf(", %d failing", failing)
	if failing > 0 {
		note += ": " + abridged(c.Failing)
	}
	return note
}

// doctorNote is the result of forge doctor on one line: the worst finding, and how many more.
func doctorNote(findings []doctor.Finding) string {
	if len(findings) == 0 {
		return "no findings"
	}
	worst, failed := findings[0], 0
	for _, f := range findings {
		if f.Status == doctor.Fail {
			if failed++; worst.Status != doctor.Fail {
				worst = f
			}
		}
	}
	note := fmt.Sprintf("%s: %s: %s", worst.Status, worst.Check, firstLine(worst.Detail, 100))
	if more := len(findings) - 1; more > 0 {
		note += fmt.Sprintf(", and %d more: forge doctor", more)
	}
	return note
}

// abridged lists the first few of many names.
func abridged(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// queueJobs are the jobs of a queue by state.
type queueJobs struct {
	queue  string
	states map[string]jobstore.Count
}

func (a *app) printStatus(s clusterStatus) error {
	if !a.tabular() {
		return a.document(s)
	}
	if err := one(a, s, statusProperties); err != nil {
		return err
	}
	a.printf("\n")
	if err := few(a, s.Leaders, leaderLineColumns()); err != nil {
		return err
	}
	a.printf("\n")
	if err := few(a, s.Nodes, nodeColumns); err != nil {
		return err
	}
	a.printf("\n")
	return few(a, byQueue(s.Jobs), queueJobColumns())
}

// few prints the first rows of a list, and how many more there are.
func few[T any](a *app, rows []T, columns []column[T]) error {
	if err := list(a, rows[:min(len(rows), shownStatus)], columns); err != nil {
		return err
	}
	if more := len(rows) - shownStatus; more > 0 {
		a.printf("… %d more\n", more)
	}
	return nil
}

// byQueue collects the counts of each queue. They are ordered by queue.
func byQueue(counts []jobstore.Count) []queueJobs {
	var queues []queueJobs
	for _, count := range counts {
		if len(queues) == 0 || queues[len(queues)-1].queue != count.Queue {
			queues = append(queues, queueJobs{count.Queue, map[string]jobstore.Count{}})
		}
		queues[len(queues)-1].states[count.State] = count
	}
	return queues
}

func queueJobColumns() []column[queueJobs] {
	columns := []column[queueJobs]{{title: "queue", show: func(q queueJobs) string { return q.queue }}}
	for _, state := range jobStates {
		columns = append(columns, column[queueJobs]{title: state, show: func(q queueJobs) string {
			count, known := q.states[state]
			if !known {
				return "-"
			}
			return atLeast(count.Jobs, count.More)
		}})
	}
	return columns
}
