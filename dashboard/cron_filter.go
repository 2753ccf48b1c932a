package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// The filters of the list of crons.
const (
	cronsPaused  = "paused"
	cronsOverdue = "overdue"
	cronsBlocked = "blocked"
)

var cronFilters = []string{cronsPaused, cronsOverdue, cronsBlocked}

// matches reports whether a cron matches one of the filters.
func matches(filter string, now time.Time, c *cronstore.Outlined) bool {
	switch filter {
	case cronsPaused:
		return c.Paused
	case cronsOverdue:
		return !c.Paused && isOverdue(now, c.NextTick)
	case cronsBlocked:
		return !c.Paused && c.BlockedBy != 0
	default:
		return true
	}
}

func countCrons(now time.Time, crons []cronstore.Outlined) map[string]int {
	counts := map[string]int{}
	for i := range crons {
		for _, filter := range cronFilters {
			if matches(filter, now, &crons[i]) {
				counts[filter]++
			}
		}
	}
	return counts
}

// cronsNamed returns the crons whose name or job contains a text.
func cronsNamed(crons []cronstore.Outlined, text string) []cronstore.Outlined {
	if text == "" {
		return crons
	}
	var found []cronstore.Outlined
	wanted := strings.ToLower(text)
	for _, c := range crons {
		if strings.Contains(strings.ToLower(c.Name+" "+c.Job), wanted) {
			found = append(found, c)
		}
	}
	return found
}

func cronsPath(filter string) string { return "/crons?" + values("is", filter) }

// tab is a filter of a list. Count is how many items match it, empty if that is unknown.
type tab struct {
	Name, Path, Count string
	Current           bool
}

// Narrowed reports whether the list is filtered.
func (b *cronsBody) Narrowed() bool { return b.Query != "" || b.Is != "" }

// choose filters the crons and returns one page of them.
func (b *cronsBody) choose(now time.Time, crons []cronstore.Outlined, after string) ([]cronstore.Outlined, error) {
	if b.Is != "" && !slices.Contains(cronFilters, b.Is) {
		return nil, &requestError{fmt.Errorf("is must be one of %s", strings.Join(cronFilters, ", "))}
	}
	found := cronsNamed(crons, b.Query)
	counts := countCrons(now, found)
	b.Tabs = []tab{{"all", "/crons?" + values("q", b.Query), number(int64(len(found))), b.Is == ""}}
	for _, filter := range cronFilters {
		b.Tabs = append(b.Tabs, tab{filter, "/crons?" + values("q", b.Query, "is", filter), number(int64(counts[filter])), b.Is == filter})
	}
	shown := []cronstore.Outlined{}
	for i := range found {
		if found[i].Name > after && matches(b.Is, now, &found[i]) {
			shown = append(shown, found[i])
		}
		if len(shown) > cronsPerPage { // there is a next page
			break
		}
	}
	if len(shown) > cronsPerPage {
		shown = shown[:cronsPerPage]
		b.Next = "/crons?" + values("q", b.Query, "is", b.Is, "after", shown[len(shown)-1].Name)
	}
	return shown, nil
}
