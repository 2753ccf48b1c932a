package dashboard

import (
	"fmt"
	"net/url"
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

// cronFilter selects crons in force by name, for the page and the API.
type cronFilter struct {
	// Text is a part of their names or of their jobs' names, in any case; empty: any.
	Text string
	// Is is one of cronFilters; empty: any.
	Is string
	// After selects crons after this name; empty: all.
	After string
}

func newCronFilter(values url.Values) cronFilter {
	return cronFilter{Text: values.Get("q"), Is: values.Get("is"), After: values.Get("after")}
}

// named returns the crons whose name or job contains the text.
func (f cronFilter) named(crons []cronstore.Outlined) []cronstore.Outlined {
	if f.Text == "" {
		return crons
	}
	var found []cronstore.Outlined
	wanted := strings.ToLower(f.Text)
	for _, c := range crons {
		if strings.Contains(strings.ToLower(c.Name+" "+c.Job), wanted) {
			found = append(found, c)
		}
	}
	return found
}

// page returns the first crons, at most limit, of those that named returned. next is the
// name after which the next page begins; empty: this is the last page.
func (f cronFilter) page(now time.Time, named []cronstore.Outlined, limit int) (page []cronstore.Outlined, next string) {
	page = []cronstore.Outlined{}
	for i := range named {
		if named[i].Name <= f.After || !matches(f.Is, now, &named[i]) {
			continue
		}
		if len(page) == limit {
			return page, page[limit-1].Name
		}
		page = append(page, named[i])
	}
	return page, ""
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
func (b *cronsBody) choose(now time.Time, crons []cronstore.Outlined, filter cronFilter) ([]cronstore.Outlined, error) {
	if b.Is != "" && !slices.Contains(cronFilters, b.Is) {
		return nil, &requestError{fmt.Errorf("is must be one of %s", strings.Join(cronFilters, ", "))}
	}
	found := filter.named(crons)
	counts := countCrons(now, found)
	b.Tabs = []tab{{"all", "/crons?" + values("q", b.Query), number(int64(len(found))), b.Is == ""}}
	for _, is := range cronFilters {
		b.Tabs = append(b.Tabs, tab{is, "/crons?" + values("q", b.Query, "is", is), number(int64(counts[is])), b.Is == is})
	}
	shown, next := filter.page(now, found, cronsPerPage)
	if next != "" {
		b.Next = "/crons?" + values("q", b.Query, "is", b.Is, "after", next)
	}
	return shown, nil
}
