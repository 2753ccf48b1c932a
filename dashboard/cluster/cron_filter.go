package cluster

import (
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/filter"
)

// The filters of the list of crons.
const (
	CronsPaused  = cronstore.IsPaused
	CronsOverdue = cronstore.IsOverdue
	CronsBlocked = cronstore.IsBlocked
)

// CronFilters are the filters by condition.
var CronFilters = cronstore.Conditions

// Matches reports whether a cron matches one of the filters.
func Matches(filter string, now time.Time, c *cronstore.Outlined) bool {
	return filter == "" || c.Is(filter, now)
}

// CountCrons counts the crons that match each of the filters.
func CountCrons(now time.Time, crons []cronstore.Outlined) map[string]int {
	counts := map[string]int{}
	for i := range crons {
		for _, filter := range CronFilters {
			if Matches(filter, now, &crons[i]) {
				counts[filter]++
			}
		}
	}
	return counts
}

// CronFilter selects crons in force, for the page and the API.
type CronFilter struct {
	// Text is a part of their names or of their jobs' names, in any case; empty: any.
	Text string
	// Is is one of CronFilters; empty: any.
	Is string
	// Names selects crons by their names; empty: all.
	Names []string
	// Where narrows the filter further.
	Where *filter.Filter
	// Sort is one of the orders of cronstore; empty: by name.
	Sort string
	// After selects crons after this name; empty: all. Only the list by name has pages.
	After string
}

// NewCronFilter returns the filter in the parameters of an address.
func NewCronFilter(q *web.Query) CronFilter {
	return CronFilter{Text: q.Values.Get("q"), Is: q.Values.Get("is"), Where: Where(q, cronstore.FilterTable.Keys()), Sort: SortOf(q, cronstore.Orders.Names()), After: q.Values.Get("after")}
}

// Select returns the crons that match the filter, apart from Is and After.
func (f CronFilter) Select(now time.Time, crons []cronstore.Outlined) []cronstore.Outlined {
	crons = cronstore.FilterTable.Select(f.Where, now, crons)
	if f.Text == "" && f.Names == nil {
		return crons
	}
	named := map[string]bool{}
	for _, name := range f.Names {
		named[name] = true
	}
	var found []cronstore.Outlined
	wanted := strings.ToLower(f.Text)
	for _, c := range crons {
		if (f.Names == nil || named[c.Name]) && strings.Contains(strings.ToLower(c.Name+" "+c.Job), wanted) {
			found = append(found, c)
		}
	}
	return found
}

// Page returns the first crons, at most limit, of those that Select returned. next is the
// name after which the next page begins; empty: this is the last page.
func (f CronFilter) Page(now time.Time, selected []cronstore.Outlined, limit int) (page []cronstore.Outlined, next string) {
	page = []cronstore.Outlined{}
	byName := f.Sort == "" || f.Sort == cronstore.Orders[0].Name
	selected = cronstore.Orders.Sort(f.Sort, selected)
	for i := range selected {
		if byName && selected[i].Name <= f.After || !Matches(f.Is, now, &selected[i]) {
			continue
		}
		if len(page) == limit {
			if byName {
				next = page[limit-1].Name
			}
			return page, next
		}
		page = append(page, selected[i])
	}
	return page, ""
}
