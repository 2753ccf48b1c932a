package cronexpr

import (
	"fmt"
	"strings"
)

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
