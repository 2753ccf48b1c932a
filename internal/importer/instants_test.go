package importer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"pgregory.net/rapid"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// vixieCron is an entry as Vixie cron holds it: a set of values for each field, and whether the text
// of the field begins with a star.
type vixieCron struct {
	values [5]map[int]bool
	star   [5]bool
}

// parseVixie reads an expression as Vixie cron does. It is the oracle: it shares no code with the
// translation.
func parseVixie(expression string) (vixieCron, error) {
	var c vixieCron
	bounds := [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 7}}
	for i, text := range strings.Fields(expression) {
		c.values[i], c.star[i] = map[int]bool{}, text[0] == '*'
		for item := range strings.SplitSeq(text, ",") {
			base, step, stepped := strings.Cut(item, "/")
			low, high := bounds[i][0], bounds[i][1]
			if base != "*" {
				from, to, ranged := strings.Cut(base, "-")
				if stepped && !ranged {
					return c, errors.New("a step without a range")
				}
				low = vixieNumber(from, i)
				high = low
				if ranged {
					high = vixieNumber(to, i)
				}
			}
			if low > high || low < bounds[i][0] || high > bounds[i][1] {
				return c, errors.New("out of range")
			}
			n := 1
			if stepped {
				n, _ = strconv.Atoi(step)
			}
			for v := low; v <= high; v += n {
				c.values[i][v] = true
			}
		}
	}
	c.values[4][0] = c.values[4][0] || c.values[4][7]
	return c, nil
}

func vixieNumber(text string, field int) int {
	if i := strings.Index("jan feb mar apr may jun jul aug sep oct nov dec", strings.ToLower(text)); field == 3 && len(text) == 3 && i >= 0 {
		return i/4 + 1
	}
	if i := strings.Index("sun mon tue wed thu fri sat", strings.ToLower(text)); field == 4 && len(text) == 3 && i >= 0 {
		return i / 4
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

func (c vixieCron) matches(wall time.Time) bool {
	day := c.values[2][wall.Day()] && c.values[4][int(wall.Weekday())]
	if !c.star[2] && !c.star[4] {
		day = c.values[2][wall.Day()] || c.values[4][int(wall.Weekday())]
	}
	return c.values[0][wall.Minute()] && c.values[1][wall.Hour()] && c.values[3][int(wall.Month())] && day
}

// ticks returns the instants at which Vixie cron starts the entry: a fixed time that the clock skips
// is made up for after the change, and one that it repeats runs once.
func (c vixieCron) ticks(from, until time.Time, zone *time.Location) []time.Time {
	wildcard := c.star[0] || c.star[1]
	wallOf := func(at time.Time) time.Time {
		local := at.In(zone)
		return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)
	}
	shown := map[time.Time]bool{}
	var ticks []time.Time
	before := wallOf(from.Add(-4 * time.Hour))
	for at := from.Add(-4 * time.Hour); !at.After(until); at = at.Add(time.Minute) {
		wall := wallOf(at)
		fires := c.matches(wall) && (wildcard || !shown[wall])
		for missing := before.Add(time.Minute); !wildcard && missing.Before(wall); missing = missing.Add(time.Minute) {
			fires = fires || c.matches(missing)
		}
		if fires && at.After(from) {
			ticks = append(ticks, at.UTC())
		}
		shown[wall], before = true, wall
	}
	return ticks
}

// drawField draws a field of an expression, in forms that cron accepts and in some that it rejects.
func drawField(t *rapid.T, label string, low, high int, names []string) string {
	value := func(v int) string {
		if v-low < len(names) && rapid.IntRange(0, 3).Draw(t, label+" by name") == 0 {
			return names[v-low]
		}
		return strconv.Itoa(v)
	}
	items := make([]string, rapid.IntRange(1, 3).Draw(t, label+" items"))
	for i := range items {
		from := rapid.IntRange(low, high).Draw(t, label+" from")
		to := rapid.IntRange(low, high).Draw(t, label+" to")
		step := "/" + strconv.Itoa(rapid.IntRange(1, high+2).Draw(t, label+" step"))
		forms := []string{value(from), value(from), value(min(from, to)) + "-" + value(max(from, to)), value(min(from, to)) + "-" + value(max(from, to)) + step, value(from) + step, "*", "*" + step}
		items[i] = rapid.SampledFrom(forms).Draw(t, label+" form")
	}
	if rapid.IntRange(0, 2).Draw(t, label+" any") == 0 {
		items = []string{rapid.SampledFrom([]string{"*", "*", "*/2", "*/" + strconv.Itoa(high)}).Draw(t, label+" star")}
	}
	return strings.Join(items, ",")
}

func drawExpression(t *rapid.T, sunday int) string {
	months, days := strings.Fields("Jan FEB mar apr may jun jul aug sep oct nov dec"), strings.Fields("Sun MON tue wed thu fri sat")
	return strings.Join([]string{
		drawField(t, "minute", 0, 59, nil), drawField(t, "hour", 0, 23, nil), drawField(t, "day", 1, 31, nil),
		drawField(t, "month", 1, 12, months), drawField(t, "weekday", 0, sunday, days),
	}, " ")
}

// hourZones change their clocks by an hour, and not at midnight: the library of Kubernetes has
// defects in others.
var (
	hourZones = []string{"UTC", "Europe/Berlin", "America/New_York"}
	testZones = append([]string{"Australia/Lord_Howe", "Africa/Cairo"}, hourZones...)
)

// drawChange draws a zone and an instant, often close to a change of its clock.
func drawChange(t *rapid.T, zones []string) (*time.Location, string, time.Time) {
	name := rapid.SampledFrom(zones).Draw(t, "zone")
	zone, err := cronexpr.LoadZone(name)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(rapid.Int64Range(1600000000, 1900000000).Draw(t, "at")/3600*3600, 0)
	if _, end := at.In(zone).ZoneBounds(); !end.IsZero() && rapid.Bool().Draw(t, "at a change") {
		at = end.Add(-30 * time.Hour)
	}
	return zone, name, at.UTC()
}

// TestCrontabFiresAsVixieCron checks that an imported line fires at the instants at which Vixie cron
// runs it, and that only lines that cron rejects, or that are documented, are refused.
func TestCrontabFiresAsVixieCron(t *testing.T) {
	t.Parallel()
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		text := drawExpression(t, 7)
		zone, name, from := drawChange(t, testZones)
		until := from.Add(72 * time.Hour)
		result, err := Crontab("crontab", strings.NewReader(text+" /bin/job\n"), CrontabOptions{Timezone: name})
		if err != nil {
			t.Fatal(err)
		}
		want, parseErr := parseVixie(text)
		entry := result.Entries[0]
		if len(entry.Refused) > 0 {
			message := entry.Refused[0].String()
			if parseErr == nil && !strings.Contains(message, "beyond the range") && !strings.Contains(message, "never fires") {
				t.Fatalf("%q is refused: %s", text, message)
			}
			return
		}
		if parseErr != nil {
			t.Fatalf("%q: cron rejects it (%v), and it became %q", text, parseErr, entry.Cron.Schedule)
		}
		if got, want := firing(t, entry, from, until), want.ticks(from, until, zone); !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("%q became %q in %s, after %s\ngot  %v\nwant %v", text, entry.Cron.Schedule, name, from, got, want)
		}
		compared++
	})
	if compared < 20 {
		t.Errorf("%d lines were compared", compared)
	}
}

// firing returns the instants at which an imported cron fires.
func firing(t *rapid.T, e Entry, from, until time.Time) []time.Time {
	schedule, err := cronexpr.Parse(e.Cron.Schedule, cronexpr.Options{
		Name: e.Cron.Name, Timezone: e.Cron.Timezone, DSTMissing: e.Cron.DSTMissing, DSTRepeated: e.Cron.DSTRepeated,
	})
	if err != nil {
		t.Fatal(err)
	}
	var ticks []time.Time
	for tick := range schedule.Ticks(from, until) {
		if !tick.SkippedDST {
			ticks = append(ticks, tick.At)
		}
	}
	return ticks
}

// TestCronJobFiresAsInKubernetes checks that an imported CronJob fires at the instants that the
// library of Kubernetes computes.
func TestCronJobFiresAsInKubernetes(t *testing.T) {
	t.Parallel()
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		text := drawExpression(t, 6)
		_, name, from := drawChange(t, hourZones)
		until := from.Add(20 * 24 * time.Hour)
		result, err := CronJobs("cronjob.yaml", strings.NewReader(cronJob("schedule: \""+text+"\"\n  timeZone: "+name)), "UTC", Names{})
		if err != nil {
			t.Fatal(err)
		}
		want, parseErr := cron.ParseStandard("CRON_TZ=" + name + " " + text)
		entry := result.Entries[0]
		if len(entry.Refused) > 0 || parseErr != nil {
			if parseErr == nil && !strings.Contains(entry.Refused[0].Message, "never fires") {
				t.Fatalf("%q is refused: %v", text, entry.Refused)
			}
			if len(entry.Refused) == 0 {
				t.Fatalf("%q: Kubernetes rejects it (%v), and it became %q", text, parseErr, entry.Cron.Schedule)
			}
			return
		}
		got := firing(t, entry, from, until)
		for i, at := range got {
			if i > 100 {
				break
			}
			before := from
			if i > 0 {
				before = got[i-1]
			}
			if expected := want.Next(before); !expected.Equal(at) {
				t.Fatalf("%q became %q in %s: %s after %s, want %s", text, entry.Cron.Schedule, name, at, before, expected)
			}
		}
		if next := want.Next(from); len(got) == 0 && !next.IsZero() && !next.After(until) {
			t.Fatalf("%q became %q, which does not fire; want %s", text, entry.Cron.Schedule, next)
		}
		compared++
	})
	if compared < 20 {
		t.Errorf("%d CronJobs were compared", compared)
	}
}

// cronJob returns a manifest with these lines in its spec.
func cronJob(spec string) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: CronJob
metadata:
  name: backup
spec:
  %s
  jobTemplate:
    spec:
      template:
        spec:
          containers:
          - name: main
            image: example.com/backup:1
            command: [/bin/backup, --full]
`, spec)
}
