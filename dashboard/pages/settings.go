package pages

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// settingsBody is the effective configuration of this node, with secrets redacted.
type settingsBody struct {
	base
	Node     string
	Sections []settingsSection
	Applied  string
	Mine     string
	Drifts   bool
	Tabs     []tab
}

// settingsSection is one table of the file.
type settingsSection struct {
	Name string
	Rows []fact
	// Count is the number of entries of a collapsed section; Hidden is how many of them are
	// not shown.
	Count  int
	Hidden int
}

// sectionOrder is the order of the sections in the file. Other sections follow.
var sectionOrder = []string{
	"database", "node", "cluster", "scheduler", "cron_defaults", "http", "dashboard", "metrics", "retention", "queues", "notify", "alerts", "jobs", "crons",
}

// collapsed are the sections that can be long.
var collapsed = []string{"jobs", "crons"}

// shownEntries is how many entries of a collapsed section are shown.
const shownEntries = 50

func (s *Pages) loadSettings(ctx context.Context, _ *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	b := settingsBody{base: base{name: "Settings", beat: s.pulseOf(facts)}, Node: s.Self.NodeID, Tabs: s.setupTabs("settings")}
	for _, row := range nodeRows(facts, s.Self) {
		if row.Mine {
			b.Mine, b.Drifts = row.Config, row.Drifts
		}
	}
	b.Applied = facts.applied[:min(7, len(facts.applied))]
	b.Sections = sectionsOf(s.Settings())
	return &b, nil
}

func sectionsOf(settings map[string]any) []settingsSection {
	names := slices.SortedFunc(maps.Keys(settings), func(a, b string) int { return rank(a) - rank(b) })
	var sections []settingsSection
	for _, name := range names {
		section := settingsSection{Name: name}
		value := settings[name]
		if slices.Contains(collapsed, name) {
			value, section.Count = firstOf(value)
			section.Hidden = max(section.Count-shownEntries, 0)
		}
		section.Rows = flatten("", value, nil)
		if len(section.Rows) > 0 {
			sections = append(sections, section)
		}
	}
	return sections
}

func rank(name string) int {
	if i := slices.Index(sectionOrder, name); i >= 0 {
		return i
	}
	return len(sectionOrder)
}

// firstOf truncates a section with many entries, and returns their number.
func firstOf(value any) (cut any, count int) {
	switch value := value.(type) {
	case map[string]any:
		few := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(value))[:min(len(value), shownEntries)] {
			few[name] = value[name]
		}
		return few, len(value)
	case []any:
		return value[:min(len(value), shownEntries)], len(value)
	default:
		return value, 0
	}
}

// flatten converts a tree to rows. It joins keys with dots, and names the entries of lists
// of tables by their names.
func flatten(prefix string, value any, rows []fact) []fact {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			rows = flatten(strings.TrimPrefix(prefix+"."+key, "."), value[key], rows)
		}
		return rows
	case []any:
		if len(value) == 0 || !isTable(value[0]) {
			return append(rows, fact{prefix, settingText(value)})
		}
		for i, item := range value {
			name := fmt.Sprint(i + 1)
			if named, ok := item.(map[string]any)["name"].(string); ok {
				name = named
			}
			rows = flatten(strings.TrimPrefix(prefix+"."+name, "."), item, rows)
		}
		return rows
	default:
		return append(rows, fact{prefix, settingText(value)})
	}
}

func isTable(value any) bool {
	_, ok := value.(map[string]any)
	return ok
}

// settingText formats a value as in the file.
func settingText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `","`, `", "`).Replace(string(text))
}
