package alerts

import (
	"cmp"
	"time"

	"github.com/forge-scheduler/forge/internal/filter"
)

// isSilenced is the condition of alerts that are silenced.
const isSilenced = "silenced"

// FilterTable declares the keys of the filters of alerts.
var FilterTable = filter.Table[Status]{
	{
		Key:   filter.Key{Name: "alert", Example: "late*", About: "the name"},
		Texts: func(s *Status, _ time.Time) []string { return []string{s.Name} },
	},
	{
		Key:   filter.Key{Name: "state", Type: filter.Choice, Values: []string{string(Firing), string(Pending), string(Inactive)}, Example: string(Firing), About: "the state"},
		Texts: func(s *Status, _ time.Time) []string { return []string{string(s.State)} },
	},
	{
		Key:   filter.Key{Name: "severity", Example: "critical", About: "the severity"},
		Texts: func(s *Status, _ time.Time) []string { return []string{s.Severity} },
	},
	{
		Key:   filter.Key{Name: "receiver", Example: "slack*", About: "a receiver"},
		Texts: func(s *Status, _ time.Time) []string { return s.Notify },
	},
	{
		Key: filter.Key{Name: "is", Type: filter.Choice, Values: []string{isSilenced}, Example: isSilenced, About: "silenced now"},
		Texts: func(s *Status, _ time.Time) []string {
			if s.Silence == nil {
				return nil
			}
			return []string{isSilenced}
		},
	},
}

// Orders declares the orders of alerts.
var Orders = filter.Orders[Status]{
	{Name: "state", About: "firing first, then pending"},
	{Name: "name", About: "by name", Compare: func(a, b *Status) int { return cmp.Compare(a.Name, b.Name) }},
	{Name: "since", About: "the condition that has held the longest first, those that do not hold last", Compare: func(a, b *Status) int {
		if order := cmp.Compare(min(len(b.Occurrences), 1), min(len(a.Occurrences), 1)); order != 0 {
			return order
		}
		return a.since().Compare(b.since())
	}},
}

// since returns since when the condition has held; zero if it does not hold.
func (s *Status) since() (since time.Time) {
	for _, occurrence := range s.Occurrences {
		if since.IsZero() || occurrence.ActiveAt.Before(since) {
			since = occurrence.ActiveAt
		}
	}
	return since
}
