package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Diff is what differs between two versions of the cluster's sections, by
// section: crons, jobs, queues, alerts.
type Diff map[string]SectionDiff

// SectionDiff is what differs in one section, by name in order.
type SectionDiff struct {
	Added     []string     `json:"added,omitempty"`
	Changed   []ItemChange `json:"changed,omitempty"`
	Removed   []string     `json:"removed,omitempty"`
	Unchanged int          `json:"unchanged"`
}

// ItemChange is a cron, a job, a queue or an alert that both versions have.
type ItemChange struct {
	Name   string        `json:"name"`
	Fields []FieldChange `json:"fields"`
}

// FieldChange is one key; From or To is nil where the key is left out.
type FieldChange struct {
	Key  string `json:"key"`
	From any    `json:"from"`
	To   any    `json:"to"`
}

// Empty says that nothing differs.
func (d Diff) Empty() bool {
	for _, section := range d {
		if !section.Empty() {
			return false
		}
	}
	return true
}

// Empty says that nothing differs.
func (s SectionDiff) Empty() bool { return len(s.Added)+len(s.Changed)+len(s.Removed) == 0 }

// mostNames bounds the names of one section in a Diff's text.
const mostNames = 5

// String names what differs on one line: + for what is added, ~ for what is
// changed and - for what is removed, as in "crons +weekly ~steady; jobs ~tidy".
func (d Diff) String() string {
	var parts []string
	for _, section := range slices.Sorted(maps.Keys(d)) {
		if names := d[section].signed(); len(names) > mostNames {
			parts = append(parts, fmt.Sprintf("%s %s and %d more", section, strings.Join(names[:mostNames], " "), len(names)-mostNames))
		} else if len(names) > 0 {
			parts = append(parts, section+" "+strings.Join(names, " "))
		}
	}
	return strings.Join(parts, "; ")
}

func (s SectionDiff) signed() []string {
	var names []string
	for _, name := range s.Added {
		names = append(names, "+"+name)
	}
	for _, change := range s.Changed {
		names = append(names, "~"+change.Name)
	}
	for _, name := range s.Removed {
		names = append(names, "-"+name)
	}
	return names
}

// Compare tells what leads from one version of the cluster's sections to
// another; an empty text has none.
func Compare(from, to []byte) (Diff, error) {
	before, err := decodeSections(from)
	if err != nil {
		return nil, err
	}
	after, err := decodeSections(to)
	if err != nil {
		return nil, err
	}
	diff := Diff{}
	for name := range union(before, after) {
		diff[name] = compareSection(byName(before[name]), byName(after[name]))
	}
	return diff, nil
}

func compareSection(before, after map[string]any) SectionDiff {
	var diff SectionDiff
	for _, name := range slices.Sorted(maps.Keys(union(before, after))) {
		old, existed := before[name]
		edited, exists := after[name]
		switch {
		case !existed:
			diff.Added = append(diff.Added, name)
		case !exists:
			diff.Removed = append(diff.Removed, name)
		case reflect.DeepEqual(old, edited):
			diff.Unchanged++
		default:
			diff.Changed = append(diff.Changed, ItemChange{Name: name, Fields: compareFields("", old, edited)})
		}
	}
	return diff
}

// compareFields goes into tables; lists are compared whole.
func compareFields(path string, old, edited any) []FieldChange {
	before, wasTable := old.(map[string]any)
	after, isTable := edited.(map[string]any)
	if !wasTable || !isTable {
		if reflect.DeepEqual(old, edited) {
			return nil
		}
		return []FieldChange{{Key: path, From: old, To: edited}}
	}
	var changes []FieldChange
	for _, name := range slices.Sorted(maps.Keys(union(before, after))) {
		changes = append(changes, compareFields(join(path, name), before[name], after[name])...)
	}
	return changes
}

func union(a, b map[string]any) map[string]bool {
	names := make(map[string]bool, len(a)+len(b))
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	return names
}
