package pages

import (
	"strings"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// tab is a filter of a list. Count is how many items match it, empty if that is unknown.
type tab struct {
	Name, Path, Count string
	Current           bool
}

// remark is a sentence, or a number with what it counts. Path is the address of a page
// about it, if there is one.
type remark struct{ Text, Path string }

type tile struct {
	Name  string
	Value string
	Of    string
	Path  string
	Tone  string
	Notes []remark
}

// act is a button of a page.
type act struct {
	Path, Words, Icon string
}

// Icons are the icons of the actions on jobs.
var Icons = map[jobstore.Action]string{jobstore.Retry: "retry", jobstore.Cancel: "stop", jobstore.Discard: "cross"}

func title(action jobstore.Action) string {
	return strings.ToUpper(string(action[:1])) + string(action[1:])
}

// fact is a row in a page's list of facts.
type fact struct{ Name, Value string }

func withoutEmpty(facts []fact) []fact {
	var full []fact
	for _, f := range facts {
		if f.Value != "" {
			full = append(full, f)
		}
	}
	return full
}
