package compactor_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/compactor"
)

const day = 24 * time.Hour

// noon is in the middle of a Wednesday.
var noon = time.Date(2026, 11, 25, 12, 30, 0, 0, time.UTC)

func at(days int) time.Time { return noon.Truncate(day).AddDate(0, 0, days) }

func TestWidth(t *testing.T) {
	t.Parallel()
	for keep, want := range map[time.Duration]time.Duration{
		time.Minute: time.Hour, day: 6 * time.Hour, 3 * day: 6 * time.Hour, 4 * day: day, 30 * day: 7 * day,
		90 * day: 7 * day, 365 * day: 91 * day, 3650 * day: 364 * day,
	} {
		if got := compactor.Width(keep); got != want {
			t.Errorf("Width(%s) = %s, want %s", keep, got, want)
		}
	}
}

func TestCuts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		last, newest time.Time
		want         []time.Time
	}{
		"one of everything":            {want: []time.Time{at(1), at(2), at(3), at(4)}},
		"one of everything to come":    {newest: at(9), want: []time.Time{at(10)}},
		"half are used up":             {last: at(2), want: []time.Time{at(3), at(4)}},
		"less than half":               {last: at(3)},
		"nobody made any for long":     {last: at(-30), newest: noon, want: []time.Time{at(1), at(2), at(3), at(4)}},
		"and nothing is in it":         {last: at(-30), want: []time.Time{at(1), at(2), at(3), at(4)}},
		"another width":                {last: at(1).Add(3 * time.Hour), want: []time.Time{at(2), at(3), at(4)}},
		"something is far beyond it":   {last: at(1), newest: at(3).Add(time.Hour), want: []time.Time{at(4)}},
		"something is at its very end": {last: at(1), newest: at(2), want: []time.Time{at(3), at(4)}},
	} {
		layout := compactor.Layout{{Name: "first"}}
		if !test.last.IsZero() {
			layout = compactor.Layout{{Name: "first", To: test.last}, {Name: "last", From: test.last}}
		}
		if diff := cmp.Diff(test.want, layout.Cuts(noon, test.newest, day)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestExpiredAndSweepable(t *testing.T) {
	t.Parallel()
	const large = 100
	part := func(from, to int, bytes int64) compactor.Partition {
		return compactor.Partition{From: at(from), To: at(to), Bytes: bytes, Owned: true}
	}
	first := compactor.Partition{To: at(1), Bytes: 5, Owned: true}
	grown := first
	grown.Bytes = large
	last := compactor.Partition{From: at(9), Owned: true}
	layout := compactor.Layout{first, part(1, 2, 500), part(2, 3, 5), part(3, 4, 500), part(4, 5, 500), last}
	for name, test := range map[string]struct {
		layout  compactor.Layout
		before  time.Time
		expired int
		spans   []compactor.Span
	}{
		"nothing":                    {layout, at(1).Add(-1), 0, []compactor.Span{{To: at(1).Add(-1)}}},
		"only what was replaced":     {layout, at(1), 0, []compactor.Span{{To: at(1)}}},
		"what has grown":             {compactor.Layout{grown, last}, at(1), 1, []compactor.Span{{To: at(1)}}},
		"in the midst of a large":    {layout, at(3).Add(1), 3, []compactor.Span{{To: at(1)}, {From: at(2), To: at(3)}}},
		"in the midst of a small":    {layout, at(3).Add(-1), 2, []compactor.Span{{To: at(1)}, {From: at(2), To: at(3).Add(-1)}}},
		"the last is never over":     {layout, at(99), 5, []compactor.Span{{To: at(1)}, {From: at(2), To: at(3)}, {From: at(9), To: at(99)}}},
		"one that has no partitions": {compactor.Layout{{Bytes: 500, Owned: true}}, at(1), 0, []compactor.Span{{To: at(1)}}},
	} {
		if got := test.layout.Expired(test.before, large); got != test.expired {
			t.Errorf("%s: %d are over, want %d", name, got, test.expired)
		}
		if diff := cmp.Diff(test.spans, test.layout.Sweepable(test.before, large, false)); diff != "" {
			t.Errorf("%s: what is swept (-want +got):\n%s", name, diff)
		}
	}
	crowded := []compactor.Span{{To: at(1)}, {From: at(1), To: at(2)}, {From: at(2), To: at(3)}}
	if diff := cmp.Diff(crowded, layout.Sweepable(at(3).Add(time.Hour), large, true)); diff != "" {
		t.Errorf("crowded (-want +got):\n%s", diff)
	}
	layout[2].Owned = false
	all := []compactor.Span{{To: at(1)}, {From: at(1), To: at(2)}, {From: at(2), To: at(2).Add(time.Hour)}}
	if diff := cmp.Diff(all, layout.Sweepable(at(2).Add(time.Hour), large, false)); layout.Owned() || diff != "" {
		t.Errorf("another's tables (-want +got):\n%s", diff)
	}
}
