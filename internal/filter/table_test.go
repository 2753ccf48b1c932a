package filter

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type row struct {
	name string
	tags []string
	due  time.Time
}

func TestTableSelects(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	table := Table[row]{
		{Key: Key{Name: "name"}, Texts: func(r *row, _ time.Time) []string { return []string{r.name} }},
		{Key: Key{Name: "tag"}, Texts: func(r *row, _ time.Time) []string { return r.tags }},
		{Key: Key{Name: "due", Type: Duration}, Span: func(r *row, now time.Time) (time.Duration, bool) {
			return r.due.Sub(now), !r.due.IsZero()
		}},
		{Key: Key{Name: "since", Type: Instant}, At: func(r *row) time.Time { return r.due }},
		{Key: Key{Name: "until", Type: Instant}, At: func(r *row) time.Time { return r.due }},
	}
	rows := []row{
		{"send_mail", []string{"eu", "bulk"}, now.Add(time.Minute)},
		{"send_sms", nil, now.Add(time.Hour)},
		{"report", []string{"us"}, time.Time{}},
	}
	for text, want := range map[string][]string{
		"":                        {"send_mail", "send_sms", "report"},
		"name:send*":              {"send_mail", "send_sms"},
		"name:send_sms name:rep*": {"send_sms", "report"},
		"tag:eu":                  {"send_mail"},
		"tag:u* tag:bulk":         {"send_mail", "report"},
		"tag:* name:report":       {"report"},
		"tag:asia":                {},
		"due:>30s":                {"send_mail", "send_sms"},
		"due:>30s due:<30m":       {"send_mail"},
		"due:<1h":                 {"send_mail"},
		"since:1h":                {"send_mail", "send_sms"},
		"until:1h":                {"report"},
		"since:2020-01-01T00:00:00Z until:" + now.Add(time.Minute).Format(time.RFC3339): {"send_mail"},
	} {
		f, err := Parse(text, table.Keys())
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, r := range table.Select(f, now, rows) {
			got = append(got, r.name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestOrdersSort(t *testing.T) {
	t.Parallel()
	orders := Orders[string]{{Name: "usual"}, {Name: "length", Compare: func(a, b *string) int { return len(*a) - len(*b) }}}
	rows := []string{"ccc", "a", "bb", "d"}
	for name, want := range map[string][]string{"": rows, "usual": rows, "nothing": rows, "length": {"a", "d", "bb", "ccc"}} {
		if diff := cmp.Diff(want, orders.Sort(name, rows)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"usual", "length"}, orders.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// The terms of a filter are not sorted into columns again for each row.
func TestSelectAllocatesLittle(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	table := Table[row]{{Key: Key{Name: "name"}, Texts: func(*row, time.Time) []string { return nil }}}
	f := New(Is("name", "a"), Is("name", "b"))
	rows := make([]row, 1000)
	if n := testing.AllocsPerRun(10, func() { table.Select(f, time.Time{}, rows) }); n > 10 {
		t.Errorf("%v allocations for %d rows", n, len(rows))
	}
}
