package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// What the list of crons can be narrowed to.
const (
	cronsPaused  = "paused"
	cronsOverdue = "overdue"
)

var cronFilters = []string{cronsPaused, cronsOverdue}

// is says whether a cron belongs to one of the filters.
func is(filter string, now time.Time, c cronstore.Cron) bool {
	switch filter {
	case cronsPaused:
		return c.Paused()
	case cronsOverdue:
		return isOverdue(now, c)
	default:
		return true
	}
}

func countCrons(now time.Time, crons []cronstore.Cron) map[string]int {
	counts := map[string]int{}
	for _, c := range crons {
		for _, filter := range cronFilters {
			if is(filter, now, c) {
				counts[filter]++
			}
		}
	}
	return counts
}

func cronsPath(filter string) string { return "/crons?" + values("is", filter) }

// tab narrows a list; Count is how many are then in it, empty where that is not known.
type tab struct {
	Name, Path, Count string
	Current           bool
}

// Narrowed says that not all crons were asked for.
func (b *cronsBody) Narrowed() bool { return b.Query != "" || b.Is != "" }

// choose narrows the crons to those that were asked for, and to a page of them.
func (b *cronsBody) choose(now time.Time, crons []cronstore.Cron, after string) ([]cronstore.Cron, error) {
	if b.Is != "" && !slices.Contains(cronFilters, b.Is) {
		return nil, &requestError{fmt.Errorf("is must be one of %s", strings.Join(cronFilters, ", "))}
	}
	wanted := strings.ToLower(b.Query)
	found := slices.DeleteFunc(slices.Clone(crons), func(c cronstore.Cron) bool {
		return !strings.Contains(strings.ToLower(c.Name+" "+c.Spec.Job), wanted)
	})
	counts := countCrons(now, found)
	b.Tabs = []tab{{"all", "/crons?" + values("q", b.Query), number(int64(len(found))), b.Is == ""}}
	for _, filter := range cronFilters {
		b.Tabs = append(b.Tabs, tab{filter, "/crons?" + values("q", b.Query, "is", filter), number(int64(counts[filter])), b.Is == filter})
	}
	shown := []cronstore.Cron{}
	for _, c := range found {
		if c.Name > after && is(b.Is, now, c) {
			shown = append(shown, c)
		}
	}
	if len(shown) > cronsPerPage {
		shown = shown[:cronsPerPage]
		b.Next = "/crons?" + values("q", b.Query, "is", b.Is, "after", shown[len(shown)-1].Name)
	}
	return shown, nil
}
