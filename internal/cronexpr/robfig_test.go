package cronexpr_test

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"pgregory.net/rapid"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// field is a field of an expression with the values that it takes.
type field struct {
	label     string
	low, high int
	names     []string
}

var plainFields = []field{
	{"second", 0, 59, nil},
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day-of-month", 1, 31, nil},
	{"month", 1, 12, strings.Fields("JAN feb Mar APR may JUN jul AUG sep OCT nov DEC")},
	{"day-of-week", 0, 6, strings.Fields("SUN mon TUE wed Thu FRI sat")},
}

func (f field) value(v int) string {
	if f.names != nil && v%2 == 0 {
		return f.names[v-f.low]
	}
	return strconv.Itoa(v)
}

// item draws the text between two commas. It never draws a star with a step in a day
// field: there the two libraries differ on purpose.
func (f field) item(t *rapid.T) string {
	from := rapid.IntRange(f.low, f.high).Draw(t, f.label+" from")
	to := rapid.IntRange(from, f.high).Draw(t, f.label+" to")
	step := "/" + strconv.Itoa(rapid.IntRange(1, f.high-f.low).Draw(t, f.label+" step"))
	forms := []string{
		f.value(from), f.value(from), f.value(from) + "-" + f.value(to),
		f.value(from) + "-" + f.value(to) + step, f.value(from) + step,
	}
	if !strings.HasPrefix(f.label, "day") {
		forms = append(forms, "*"+step)
	}
	return rapid.SampledFrom(forms).Draw(t, f.label+" form")
}

func (f field) draw(t *rapid.T) string {
	if rapid.IntRange(0, 2).Draw(t, f.label+" is any") == 0 {
		return "*"
	}
	items := make([]string, rapid.IntRange(1, 3).Draw(t, f.label+" items"))
	for i := range items {
		items[i] = f.item(t)
	}
	return strings.Join(items, ",")
}

// TestPlainExpressionsAgreeWithRobfig checks that expressions that both libraries accept
// have the same ticks in UTC: robfig/cron is an oracle for all plain expressions.
func TestPlainExpressionsAgreeWithRobfig(t *testing.T) {
	t.Parallel()
	theirs := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	var compared atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			fields := plainFields[rapid.IntRange(0, 1).Draw(t, "first field"):]
			texts := make([]string, len(fields))
			for i, f := range fields {
				texts[i] = f.draw(t)
			}
			expression := strings.Join(texts, " ")
			want, theirError := theirs.Parse(expression)
			got, err := cronexpr.Parse(expression, cronexpr.Options{Timezone: "UTC"})
			if theirError == nil && err == nil {
				compareNext(t, got, want)
				compared.Add(1)
			}
		}
	})
	if n := compared.Load(); n < 500 {
		t.Errorf("%d expressions were compared", n)
	}
}

func compareNext(t *rapid.T, got *cronexpr.Schedule, want cron.Schedule) {
	at := time.Unix(rapid.Int64Range(0, 4102444800).Draw(t, "from"), 0).UTC()
	for range 20 {
		expected := want.Next(at)
		if expected.IsZero() { // robfig/cron searches five years ahead
			return
		}
		next, ok := got.Next(at)
		if !ok || !next.Equal(expected) {
			t.Fatalf("%q after %s: got %s, %t, want %s", got, at, next, ok, expected)
		}
		at = next
	}
}
