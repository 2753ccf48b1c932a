package cronexpr

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// fieldSpec describes one of the six fields.
type fieldSpec struct {
	name     string
	low, top int
	// names stand for low, low+1, ...
	names []string
	// hashTop is the largest value that a bare H takes.
	hashTop int
	// top is an alias of low (7 is Sunday, like 0).
	cyclic bool
	want   string
}

var allFields = [...]*fieldSpec{
	{name: "second", top: 59, hashTop: 59, want: "0 to 59"},
	{name: "minute", top: 59, hashTop: 59, want: "0 to 59"},
	{name: "hour", top: 23, hashTop: 23, want: "0 to 23"},
	// H stays below 29 so that it fires in every month.
	{name: "day-of-month", low: 1, top: 31, hashTop: 28, want: "1 to 31, or L, L-3, 15W, LW"},
	{name: "month", low: 1, top: 12, hashTop: 12, names: monthNames, want: "1 to 12 or JAN to DEC"},
	{name: "day-of-week", top: 7, hashTop: 6, names: dayNames, cyclic: true, want: "0 to 7 or SUN to SAT, or 5L, 5#3"},
}

var (
	monthNames = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	dayNames   = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
)

// last is the largest value that is not an alias.
func (s *fieldSpec) last() int {
	if s.cyclic {
		return s.top - 1
	}
	return s.top
}

// count is the number of different values.
func (s *fieldSpec) count() int { return s.last() - s.low + 1 }

// fieldParser collects the items of one field.
type fieldParser struct {
	*parser
	spec *fieldSpec
	word word

	item word // the current one, in upper case
	raw  string
	mask uint64
	dom  monthDays
	dow  weekDays
}

func (f *fieldParser) parse() error {
	column := f.word.column
	for raw := range strings.SplitSeq(f.word.text, ",") {
		f.raw, f.item = raw, word{strings.ToUpper(raw), column}
		if err := f.parseItem(); err != nil {
			return err
		}
		column += len(raw) + 1
	}
	return nil
}

// star reports whether the field begins with * or is ?.
func (f *fieldParser) star() bool {
	return strings.HasPrefix(f.word.text, "*") || f.word.text == "?"
}

// wildcard reports whether the field follows the wall clock.
func (f *fieldParser) wildcard() bool {
	return f.star() || strings.HasPrefix(strings.ToUpper(f.word.text), "H/")
}

// store puts the field into the schedule.
func (f *fieldParser) store(s *Schedule) {
	c := &s.calendar
	switch f.spec.name {
	case "second":
		c.second = f.mask
	case "minute":
		c.minute = f.mask
		s.wildcard = s.wildcard || f.wildcard()
	case "hour":
		c.hour = uint32(f.mask)
		s.wildcard = s.wildcard || f.wildcard()
	case "day-of-month":
		c.dom = f.dom
		c.dom.days, c.dom.restricted = uint32(f.mask), !f.star()
	case "month":
		c.month = uint16(f.mask)
	case "day-of-week":
		c.dow = f.dow
		c.dow.days, c.dow.restricted = uint8(f.mask), !f.star()
	}
}

// wrong returns an error about the current item.
func (f *fieldParser) wrong(problem, want string) error {
	found := f.raw
	if found == "" {
		found = f.word.text
	}
	return f.fail(f.spec.name, f.item.column, problem, found, want)
}

func (f *fieldParser) parseItem() error {
	base, step, stepped := strings.Cut(f.item.text, "/")
	switch {
	case f.item.text == "":
		return f.wrong("an item of the list is empty", f.spec.want)
	case base == "?":
		return f.question(stepped)
	case strings.HasPrefix(base, "H"):
		return f.hashed(base[1:], step, stepped)
	}
	if special, err := f.special(base); special || err != nil {
		if err == nil && stepped {
			return f.wrong("this form takes no step", "it without the step")
		}
		return err
	}
	low, high, err := f.bounds(base, stepped)
	if err != nil {
		return err
	}
	n, err := f.step(step, stepped, high-low)
	if err != nil {
		return err
	}
	f.add(low, high, n)
	return nil
}

// add sets every step-th value from low to high. If high is beyond the field's end, add
// continues from the field's beginning.
func (f *fieldParser) add(low, high, step int) {
	for v := low; v <= high; v += step {
		f.mask |= 1 << (f.spec.low + (v-f.spec.low)%f.spec.count())
	}
}

// question handles ?, which means * in the day fields.
func (f *fieldParser) question(stepped bool) error {
	if f.spec.name != "day-of-month" && f.spec.name != "day-of-week" {
		return f.wrong("? is for days only", `"*"`)
	}
	if stepped || f.word.text != "?" {
		return f.wrong("? stands alone", `"?" or "*"`)
	}
	f.add(f.spec.low, f.spec.last(), 1)
	return nil
}

// bounds parses *, a value or a range. high is beyond the field's end for a range that
// wraps around.
func (f *fieldParser) bounds(base string, stepped bool) (low, high int, err error) {
	if base == "*" {
		return f.spec.low, f.spec.last(), nil
	}
	from, to, ranged := strings.Cut(base, "-")
	if low, err = f.value(from); err != nil {
		return 0, 0, err
	}
	switch {
	case ranged:
		if high, err = f.value(to); err != nil {
			return 0, 0, err
		}
	case stepped:
		high = max(low, f.spec.last())
	default:
		high = low
	}
	if high < low {
		high += f.spec.count()
	}
	return low, high, nil
}

// value parses a number or a name.
func (f *fieldParser) value(text string) (int, error) {
	for i, name := range f.spec.names {
		if text == name {
			return f.spec.low + i, nil
		}
	}
	if text == "" {
		return 0, f.wrong("a value is missing", f.spec.want)
	}
	n, ok := number(text)
	if !ok {
		return 0, f.wrong(fmt.Sprintf("%q is not a value", shorten(text)), f.spec.want)
	}
	if n < f.spec.low || n > f.spec.top {
		return 0, f.wrong(fmt.Sprintf("%s is out of range", shorten(text)), f.spec.want)
	}
	return n, nil
}

// step parses the text after the slash. span is the largest step accepted; a step of 1 is
// always accepted.
func (f *fieldParser) step(text string, stepped bool, span int) (int, error) {
	if !stepped {
		return 1, nil
	}
	n, ok := number(text)
	switch {
	case !ok:
		return 0, f.wrong("a step is a whole number", `a step such as "*/5"`)
	case n == 0:
		return 0, f.wrong("a step of 0 goes nowhere", "at least 1")
	case span == 0 && n > 1:
		return 0, f.wrong("a step of more than 1 needs a range", "the value without a step")
	case n > max(span, 1):
		return 0, f.wrong(fmt.Sprintf("step %s is larger than its range", shorten(text)), fmt.Sprintf("at most %d", span))
	}
	return n, nil
}

// hashed parses H, H(a-b), H/n and H(a-b)/n; rest is the text after the H.
func (f *fieldParser) hashed(rest, step string, stepped bool) error {
	low, high := f.spec.low, f.spec.hashTop
	if rest != "" {
		var err error
		if low, high, err = f.hashRange(rest); err != nil {
			return err
		}
	}
	if !stepped {
		v := low + int(f.hash()%uint64(high-low+1))
		f.add(v, v, 1)
		return nil
	}
	n, err := f.step(step, stepped, high-low)
	if err != nil {
		return err
	}
	f.add(low+int(f.hash()%uint64(n)), high, n)
	return nil
}

// hashRange parses "(a-b)".
func (f *fieldParser) hashRange(text string) (low, high int, err error) {
	example := fmt.Sprintf(`"H", "H/%d" or "H(%d-%d)"`, min(15, f.spec.count()/2), f.spec.low, f.spec.hashTop/2)
	inner, closed := strings.CutSuffix(strings.TrimPrefix(text, "("), ")")
	from, to, ranged := strings.Cut(inner, "-")
	if !strings.HasPrefix(text, "(") || !closed || !ranged {
		return 0, 0, f.wrong("malformed H", example)
	}
	if low, err = f.value(from); err != nil {
		return 0, 0, err
	}
	if high, err = f.value(to); err != nil {
		return 0, 0, err
	}
	if high < low {
		return 0, 0, f.wrong("the range of H runs backwards", example)
	}
	return low, high, nil
}

// hash depends only on the cron's name and the field. It must never change: every cron
// with an H would move.
func (f *fieldParser) hash() uint64 {
	sum := sha256.Sum256([]byte(f.spec.name + "\x00" + f.seed))
	return binary.BigEndian.Uint64(sum[:])
}

// number parses plain digits; it returns 999,999 for anything too large for a field.
func number(text string) (int, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 999_999, true
	}
	return n, true
}

// special parses the forms that only the day fields have. It reports whether the item was
// one of them.
func (f *fieldParser) special(text string) (bool, error) {
	switch f.spec.name {
	case "day-of-month":
		return f.specialDay(text)
	case "day-of-week":
		return f.specialWeekday(text)
	}
	return false, nil
}

// specialDay parses L, L-n, LW and nW.
func (f *fieldParser) specialDay(text string) (bool, error) {
	switch {
	case text == "L":
		f.dom.fromLast |= 1
	case text == "LW":
		f.dom.lastWorkday = true
	case strings.HasPrefix(text, "L"):
		n, ok := number(strings.TrimPrefix(text, "L-"))
		if !ok || n < 1 || n > 30 {
			return true, f.wrong("malformed L", `"L", or "L-1" to "L-30" for days before the last`)
		}
		f.dom.fromLast |= 1 << n
	case strings.HasSuffix(text, "W"):
		n, ok := number(strings.TrimSuffix(text, "W"))
		if !ok || n < 1 || n > 31 {
			return true, f.wrong("malformed W", `"1W" to "31W", or "LW"`)
		}
		f.dom.nearest |= 1 << n
	default:
		return false, nil
	}
	return true, nil
}

// specialWeekday parses d#n and dL.
func (f *fieldParser) specialWeekday(text string) (bool, error) {
	if day, nth, ok := strings.Cut(text, "#"); ok {
		weekday, err := f.value(day)
		if err != nil {
			return true, err
		}
		n, ok := number(nth)
		if !ok || n < 1 || n > 5 {
			return true, f.wrong("malformed #", `"5#1" to "5#5" for the first to the fifth Friday`)
		}
		f.dow.nth[weekday%7] |= 1 << n
		return true, nil
	}
	day, ok := strings.CutSuffix(text, "L")
	if !ok {
		return false, nil
	}
	if day == "" {
		return true, f.wrong("L needs a weekday here", `"5L" for the last Friday`)
	}
	weekday, err := f.value(day)
	if err != nil {
		return true, err
	}
	f.dow.last |= 1 << (weekday % 7)
	return true, nil
}

// plural formats "1 field", "4 fields".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
