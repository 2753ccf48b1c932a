package dashboard

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

func TestCronFilter(t *testing.T) {
	t.Parallel()
	now := epoch
	late := now.Add(-time.Hour)
	crons := []cronstore.Outlined{ // ordered by the bytes of their names
		{Name: "Dump_50%", Job: "mail", NextTick: now.Add(-overdueAfter)},
		{Name: "held", Job: "dump_all", NextTick: late, Paused: true},
		{Name: "late", Job: "Dump", NextTick: late},
		{Name: "new", Job: "mail"},
		{Name: "off", Job: "mail", NextTick: late, Paused: true, BlockedBy: 7},
		{Name: "stuck", Job: "copy", NextTick: now.Add(time.Hour), BlockedBy: 7},
	}
	for name, test := range map[string]struct {
		filter cronFilter
		now    time.Time
		limit  int
		want   []string
	}{
		"all":                     {cronFilter{}, now, 9, []string{"Dump_50%", "held", "late", "new", "off", "stuck"}},
		"at most the limit":       {cronFilter{}, now, 2, []string{"Dump_50%", "held"}},
		"after a name":            {cronFilter{After: "late"}, now, 9, []string{"new", "off", "stuck"}},
		"after a removed one":     {cronFilter{After: "gone"}, now, 1, []string{"held"}},
		"of a job or a name":      {cronFilter{Text: "DUMP"}, now, 9, []string{"Dump_50%", "held", "late"}},
		"over the space between":  {cronFilter{Text: "late d"}, now, 9, []string{"late"}},
		"a text is no pattern":    {cronFilter{Text: "p_50%"}, now, 9, []string{"Dump_50%"}},
		"a pattern is none":       {cronFilter{Text: "d%p"}, now, 9, nil},
		"paused":                  {cronFilter{Is: cronsPaused}, now, 9, []string{"held", "off"}},
		"overdue":                 {cronFilter{Is: cronsOverdue}, now, 9, []string{"late"}},
		"overdue by a moment":     {cronFilter{Is: cronsOverdue}, now.Add(time.Microsecond), 9, []string{"Dump_50%", "late"}},
		"blocked":                 {cronFilter{Is: cronsBlocked}, now, 9, []string{"stuck"}},
		"paused, of a job, after": {cronFilter{Text: "mail", Is: cronsPaused, After: "held"}, now, 9, []string{"off"}},
	} {
		page, next := test.filter.page(test.now, test.filter.named(crons), test.limit)
		var got []string
		for _, c := range page {
			got = append(got, c.Name)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		rest := test.filter
		rest.After = next
		more, _ := rest.page(test.now, test.filter.named(crons), len(crons))
		all, _ := test.filter.page(test.now, test.filter.named(crons), len(crons))
		if next == "" && len(page) != len(all) || next != "" && !slices.Equal(append(page, more...), all) {
			t.Errorf("%s: the page after %q is %+v", name, next, more)
		}
	}
}
