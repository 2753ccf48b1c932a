package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/filter"
)

func where(t *testing.T, text string) *filter.Filter {
	t.Helper()
	parsed, err := filter.Parse(text, cronstore.FilterTable.Keys())
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestCronFilter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	late := now.Add(-time.Hour)
	crons := []cronstore.Outlined{ // ordered by the bytes of their names
		{Name: "Dump_50%", Job: "mail", NextTick: now.Add(-2 * time.Second)},
		{Name: "held", Job: "dump_all", NextTick: late, Paused: true},
		{Name: "late", Job: "Dump", NextTick: late},
		{Name: "new", Job: "mail"},
		{Name: "off", Job: "mail", NextTick: late, Paused: true, BlockedBy: 7},
		{Name: "stuck", Job: "copy", NextTick: now.Add(time.Hour), BlockedBy: 7},
	}
	for name, test := range map[string]struct {
		filter CronFilter
		now    time.Time
		limit  int
		want   []string
	}{
		"all":                     {CronFilter{}, now, 9, []string{"Dump_50%", "held", "late", "new", "off", "stuck"}},
		"at most the limit":       {CronFilter{}, now, 2, []string{"Dump_50%", "held"}},
		"after a name":            {CronFilter{After: "late"}, now, 9, []string{"new", "off", "stuck"}},
		"after a removed one":     {CronFilter{After: "gone"}, now, 1, []string{"held"}},
		"the next first":          {CronFilter{Sort: "next"}, now, 9, []string{"late", "Dump_50%", "stuck", "held", "new", "off"}},
		"of a job or a name":      {CronFilter{Text: "DUMP"}, now, 9, []string{"Dump_50%", "held", "late"}},
		"over the space between":  {CronFilter{Text: "late d"}, now, 9, []string{"late"}},
		"a text is no pattern":    {CronFilter{Text: "p_50%"}, now, 9, []string{"Dump_50%"}},
		"a pattern is none":       {CronFilter{Text: "d%p"}, now, 9, nil},
		"paused":                  {CronFilter{Is: CronsPaused}, now, 9, []string{"held", "off"}},
		"overdue":                 {CronFilter{Is: CronsOverdue}, now, 9, []string{"late"}},
		"overdue by a moment":     {CronFilter{Is: CronsOverdue}, now.Add(time.Microsecond), 9, []string{"Dump_50%", "late"}},
		"blocked":                 {CronFilter{Is: CronsBlocked}, now, 9, []string{"stuck"}},
		"of terms":                {CronFilter{Where: where(t, "cron:*t* job:copy job:mail")}, now, 9, []string{"stuck"}},
		"soon":                    {CronFilter{Where: where(t, "next:<2h next:>0s")}, now, 9, []string{"stuck"}},
		"in a condition":          {CronFilter{Where: where(t, "is:paused is:blocked")}, now, 9, []string{"held", "off", "stuck"}},
		"of terms and a job":      {CronFilter{Text: "mail", Where: where(t, "cron:n*")}, now, 9, []string{"new"}},
		"paused, of a job, after": {CronFilter{Text: "mail", Is: CronsPaused, After: "held"}, now, 9, []string{"off"}},
	} {
		page, next := test.filter.Page(test.now, test.filter.Select(test.now, crons), test.limit)
		var got []string
		for _, c := range page {
			got = append(got, c.Name)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		rest := test.filter
		rest.After = next
		more, _ := rest.Page(test.now, test.filter.Select(test.now, crons), len(crons))
		all, _ := test.filter.Page(test.now, test.filter.Select(test.now, crons), len(crons))
		if next == "" && len(page) != len(all) || next != "" && !slices.Equal(append(page, more...), all) {
			t.Errorf("%s: the page after %q is %+v", name, next, more)
		}
	}
}
