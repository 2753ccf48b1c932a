package cluster

import (
	"net/url"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// The filters of the list of crons.
const (
	CronsPaused  = "paused"
	CronsOverdue = "overdue"
	CronsBlocked = "blocked"
)

// CronFilters are the filters by state.
var CronFilters = []string{CronsPaused, CronsOverdue, CronsBlocked}

// Matches reports whether a cron matches one of the filters.
func Matches(filter string, now time.Time, c *cronstore.Outlined) bool {
	switch filter {
	case CronsPaused:
		return c.Paused
	case CronsOverdue:
		return !c.Paused && IsOverdue(now, c.NextTick)
	case CronsBlocked:
		return !c.Paused && c.BlockedBy != 0
	default:
		return true
	}
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

// CronFilter selects crons in force by name, for the page and the API.
type CronFilter struct {
	// Text is a part of their names or of their jobs' names, in any case; empty: any.
	Text string
	// Is is one of CronFilters; empty: any.
	Is string
	// After selects crons after this name; empty: all.
	After string
}

// NewCronFilter returns the filter in the parameters of an address.
func NewCronFilter(values url.Values) CronFilter {
	return CronFilter{Text: values.Get("q"), Is: values.Get("is"), After: values.Get("after")}
}

// Named returns the crons whose name or job contains the text.
func (f CronFilter) Named(crons []cronstore.Outlined) []cronstore.Outlined {
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

// Page returns the first crons, at most limit, of those that named returned. next is the
// name after which the next page begins; empty: this is the last page.
func (f CronFilter) Page(now time.Time, named []cronstore.Outlined, limit int) (page []cronstore.Outlined, next string) {
	page = []cronstore.Outlined{}
	for i := range named {
		if named[i].Name <= f.After || !Matches(f.Is, now, &named[i]) {
			continue
		}
		if len(page) == limit {
			return page, page[limit-1].Name
		}
		page = append(page, named[i])
	}
	return page, ""
}
