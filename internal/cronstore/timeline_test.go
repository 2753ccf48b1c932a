package cronstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return instant
}

func timeline(t *testing.T, s cronstore.Spec) *cronstore.Timeline {
	t.Helper()
	line, err := s.Timeline("a")
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func TestTimelineStaysInBounds(t *testing.T) {
	t.Parallel()
	bounded := spec("@hourly")
	bounded.StartAt, bounded.EndAt = at(t, "2026-01-01T02:00:00Z"), at(t, "2026-01-01T05:00:00Z")
	bounded.Exclude = []string{"30 * * * *", "* 3 * * *"}
	line := timeline(t, bounded)
	var got []string
	for due := range line.Ticks(at(t, "2025-12-31T00:00:00Z"), at(t, "2026-01-02T00:00:00Z")) {
		got = append(got, due.At.Format("15:04 ")+due.Excluded)
	}
	if diff := cmp.Diff([]string{"02:00 ", "03:00 * 3 * * *", "04:00 "}, got); diff != "" {
		t.Error(diff)
	}
	if next, ok := line.Next(at(t, "2020-01-01T00:00:00Z")); !ok || !next.Equal(bounded.StartAt) {
		t.Errorf("first tick %s", next)
	}
	if next, ok := line.Next(at(t, "2026-01-01T04:00:00Z")); ok {
		t.Errorf("a tick at the end: %s", next)
	}
	if last, ok := line.Before(at(t, "2026-07-01T00:00:00Z")); !ok || !last.At.Equal(at(t, "2026-01-01T04:00:00Z")) {
		t.Errorf("last tick %v", last)
	}
	if _, due := line.At(bounded.EndAt); due {
		t.Error("due at its end")
	}
}

// A tick that daylight saving omits is due, for the ledger, but is not returned by
// Next.
func TestNextIgnoresTicksInDSTGap(t *testing.T) {
	t.Parallel()
	nightly := spec("30 2 * * *")
	nightly.Timezone, nightly.DSTMissing = "Europe/Berlin", "skip"
	line, eve := timeline(t, nightly), at(t, "2026-03-28T12:00:00Z")
	if due, ok := line.At(at(t, "2026-03-29T01:00:00Z")); !ok || !due.SkippedDST {
		t.Errorf("in the gap: %+v, %t", due, ok)
	}
	if next, ok := line.Next(eve); !ok || !next.Equal(at(t, "2026-03-30T00:30:00Z")) {
		t.Errorf("next is %s", next)
	}
}

func TestJitterDependsOnTick(t *testing.T) {
	t.Parallel()
	shaken := spec("* * * * *")
	shaken.Jitter = config.Duration(50 * time.Second)
	line, buckets := timeline(t, shaken), map[int]int{}
	for due := range line.Ticks(at(t, "2026-01-01T00:00:00Z"), at(t, "2026-01-01T10:00:00Z")) {
		delay := due.FiresAt.Sub(due.At)
		if delay < 0 || delay >= shaken.Jitter.Std() {
			t.Fatalf("%s is delayed by %s", due.At, delay)
		}
		buckets[int(delay/(5*time.Second))]++
		if again, _ := timeline(t, shaken).At(due.At); !again.FiresAt.Equal(due.FiresAt) {
			t.Fatalf("%s fires at %s and at %s", due.At, due.FiresAt, again.FiresAt)
		}
		if next, _ := line.Next(due.At.Add(-time.Second)); !next.Equal(due.FiresAt) {
			t.Fatalf("Next says %s, the tick %s", next, due.FiresAt)
		}
	}
	for bucket := range 10 { // 600 ticks: 60 each
		if n := buckets[bucket]; n < 30 || n > 90 {
			t.Errorf("%d ticks are delayed by %d to %d s", n, 5*bucket, 5*bucket+5)
		}
	}
}

// The jitter of an earlier definition ends with it if a later one fires before the jitter would
// have ended. Otherwise each tick keeps its delay.
func TestJitterEndsBeforeTicksOfLaterDefinition(t *testing.T) {
	t.Parallel()
	daily := spec("0 0 * * *")
	daily.Jitter = config.Duration(20 * time.Hour)
	midnight := at(t, "2026-01-02T00:00:00Z")
	first, ok := timeline(t, daily).At(midnight)
	for day := 0; !ok || first.FiresAt.Before(midnight.Add(15*time.Hour)); day++ { // a day with a long delay
		midnight = midnight.AddDate(0, 0, 1)
		first, ok = timeline(t, daily).At(midnight)
	}
	hour := func(n int) time.Time { return midnight.Add(time.Duration(n) * time.Hour) }
	edit := func(change func(*cronstore.Spec)) cronstore.Spec {
		s := spec("0 6 * * *")
		change(&s)
		return s
	}
	plain := edit(func(*cronstore.Spec) {})
	excluding := daily
	excluding.Exclude = []string{"* * * * *"}
	for name, test := range map[string]struct {
		earlier []cronstore.Era
		spec    cronstore.Spec
		paused  time.Time
		want    time.Time // when the tick at midnight fires
		next    time.Time // when the next one does
	}{
		"due sooner":           {[]cronstore.Era{{Spec: daily, Until: hour(1)}}, plain, time.Time{}, hour(1), hour(6)},
		"due later":            {[]cronstore.Era{{Spec: daily, Until: hour(7)}}, plain, time.Time{}, first.FiresAt, hour(24 + 6)},
		"excluded":             {[]cronstore.Era{{Spec: daily, Until: hour(1)}}, edit(func(s *cronstore.Spec) { s.Exclude = []string{midnight.Format(time.DateOnly)} }), time.Time{}, first.FiresAt, hour(6)},
		"paused by the file":   {[]cronstore.Era{{Spec: daily, Until: hour(1)}}, edit(func(s *cronstore.Spec) { s.Paused = true }), time.Time{}, first.FiresAt, hour(6)},
		"paused by hand":       {[]cronstore.Era{{Spec: daily, Until: hour(1)}}, plain, hour(2), first.FiresAt, hour(6)},
		"was excluded itself":  {[]cronstore.Era{{Spec: excluding, Until: hour(1)}}, plain, time.Time{}, hour(1), hour(6)},
		"was removed":          {[]cronstore.Era{{Spec: daily, Removed: true, Until: hour(1)}, {Spec: spec("@manual"), Until: hour(3)}}, plain, time.Time{}, hour(1), hour(6)},
		"a definition between": {[]cronstore.Era{{Spec: daily, Until: hour(1)}, {Spec: spec("0 6 * * *"), Until: hour(8)}}, spec("@yearly"), time.Time{}, hour(1), hour(6)},
		"none between":         {[]cronstore.Era{{Spec: daily, Until: hour(1)}, {Spec: spec("@yearly"), Until: hour(2)}}, plain, time.Time{}, hour(1), hour(6)},
	} {
		cron := cronstore.Cron{Name: "a", Spec: test.spec, Earlier: test.earlier, PausedAt: test.paused}
		line, err := cron.Timeline()
		if err != nil {
			t.Fatal(err)
		}
		var fires []time.Time
		for due := range line.Ticks(midnight.Add(-time.Second), hour(40)) {
			fires = append(fires, due.FiresAt)
		}
		if len(fires) < 2 || !fires[0].Equal(test.want) || !fires[1].Equal(test.next) {
			t.Errorf("%s: ticks fire at %v, want %s and %s", name, fires, test.want, test.next)
		}
		if next, ok := line.Next(midnight.Add(-time.Second)); !ok || !next.Equal(test.want) {
			t.Errorf("%s: Next says %s, want %s", name, next, test.want)
		}
	}
}

// A change of any of these starts a new stretch; an equal timing does not.
func TestChangedTimingStartsNow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s := spec("* * * * * *")
	n := 0
	change := func(what string, changes bool) {
		n++
		exec(t, pool, `UPDATE forge_crons SET watermark = clock_timestamp() - interval '5 seconds'`)
		old := get(t, pool, "a")
		s.Job = fmt.Sprint("job", n)
		apply(t, pool, fmt.Sprint("h", n), map[string]cronstore.Spec{"a": s}, false)
		if got := get(t, pool, "a"); (len(got.Earlier) > 0) != changes || !got.Watermark.Equal(old.Watermark) {
			t.Errorf("%s: %d eras", what, len(got.Earlier))
		}
		exec(t, pool, `UPDATE forge_crons SET watermark = clock_timestamp()`)
		s.Job = fmt.Sprint("drop the eras", n)
		n++
		apply(t, pool, fmt.Sprint("h", n), map[string]cronstore.Spec{"a": s}, false)
	}
	apply(t, pool, "h0", map[string]cronstore.Spec{"a": s}, false)
	change("the job alone", false)
	s.StartAt = at(t, "2026-01-01T00:00:00Z")
	change("start_at", true)
	s.StartAt = at(t, "2026-01-01T01:00:00+01:00")
	s.Exclude = []string{"2026-12-25"}
	change("exclude", true)
	s.Exclude = []string{"2026-12-25"}
	s.Jitter = config.Duration(500 * time.Millisecond)
	change("jitter", true)
}

// A row of an earlier release keeps of an earlier definition only what sets its ticks.
func TestEarlierDefinitionHasItsTimingAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"a": spec("@hourly")}, false)
	exec(t, pool, `UPDATE forge_crons SET watermark = '2026-01-01T00:00:00Z', spec = spec || '{"earlier": [
		{"schedule": "*/20 * * * *", "timezone": "UTC", "dst_missing": "run-after", "dst_repeated": "first", "until": "2026-01-01T01:30:00Z"}]}'`)
	cron := get(t, pool, "a")
	line, err := cron.Timeline()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for due := range line.Ticks(cron.Watermark, at(t, "2026-01-01T03:00:00Z")) {
		got = append(got, due.At.UTC().Format("15:04"))
	}
	if diff := cmp.Diff([]string{"00:20", "00:40", "01:00", "01:20", "02:00", "03:00"}, got); diff != "" {
		t.Error(diff)
	}
	if line.Spec().Schedule != "@hourly" {
		t.Errorf("the definition in force is %+v", line.Spec())
	}
}
