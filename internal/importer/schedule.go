package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// dialect is how a program reads the five fields of an expression.
type dialect int

const (
	// vixie is cron on Linux and BSD: a day field that begins with * does not
	// restrict, 7 is Sunday, and a step needs a range.
	vixie dialect = iota
	// robfig is the library of Kubernetes: a day field with a * without a step does not restrict,
	// there is no 7, and a/n is every n-th value from a to the end.
	robfig
	// pgCron is vixie's with $ for the last day of the month.
	pgCron
)

// fieldError is a field that the dialect rejects or forge cannot express.
type fieldError struct {
	column      int // in the line, from 1
	message     string
	got, wanted string
}

func (e *fieldError) Error() string {
	return fmt.Sprintf("%s (got %q); want %s", e.message, e.got, e.wanted)
}

// fieldRange are the values of a field. The last is one more for vixie's weekdays.
type fieldRange struct {
	name      string
	low, last int
	names     []string
}

var fieldRanges = []fieldRange{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day-of-month", 1, 31, nil},
	{"month", 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{"day-of-week", 0, 6, strings.Fields("sun mon tue wed thu fri sat")},
}

const (
	dayOfMonth = 2
	dayOfWeek  = 4
)

// field is a field in forge's language.
type field struct {
	items []string
	// star reports whether the dialect takes the field as one that does not restrict days.
	star bool
	// shrunk is set if a step beyond the field's end left one value of a field with a star.
	shrunk bool
}

func (f field) String() string { return strings.Join(f.items, ",") }

// word is a part of a line and its column, from 1.
type word struct {
	text   string
	column int
}

// expression is a schedule in forge's language.
type expression struct {
	text  string
	notes []string
	// wallClock is set if the expression follows the wall clock in its dialect but not in forge, which
	// then needs dst_missing = "skip" and dst_repeated = "both".
	wallClock bool
}

// translate returns five fields of a dialect in forge's language, which fires at the same instants.
func (d dialect) translate(words []word) (e expression, err error) {
	fields := make([]field, len(words))
	for i, word := range words {
		reader := fieldReader{dialect: d, fieldRange: fieldRanges[i], word: word.text, column: word.column}
		if fields[i], err = reader.read(); err != nil {
			return e, err
		}
		e.notes = append(e.notes, reader.notes...)
	}
	dom, dow := &fields[dayOfMonth], &fields[dayOfWeek]
	if d == robfig {
		dom.keepStar(fieldRanges[dayOfMonth], *dow)
		dow.keepStar(fieldRanges[dayOfWeek], *dom)
	}
	if dom.shrunk && (!dow.star || dow.shrunk) || dow.shrunk && !dom.star {
		found := words[dayOfMonth].text + " " + words[dayOfMonth+1].text + " " + words[dayOfWeek].text
		return e, &fieldError{words[dayOfMonth].column, "day-of-month: a step beyond the range beside another day field", found, "the one day that is meant"}
	}
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = f.String()
		e.wallClock = e.wallClock || f.shrunk && i < dayOfMonth
	}
	e.text = strings.Join(texts, " ")
	return e, nil
}

// keepStar makes forge, which looks at the first character of a day field, see a restriction where
// robfig sees one, and none where it sees none.
func (f *field) keepStar(values fieldRange, other field) {
	switch {
	case f.star:
		f.items = []string{"*"}
	case !other.star:
		for i, item := range f.items {
			if rest, found := strings.CutPrefix(item, "*"); found {
				f.items[i] = fmt.Sprintf("%d-%d%s", values.low, values.last, rest)
			}
		}
	}
}

// fieldReader reads one field.
type fieldReader struct {
	dialect
	fieldRange
	word   string
	column int
	notes  []string
}

// top is the largest number that the dialect accepts.
func (r *fieldReader) top() int {
	if r.dialect != robfig && r.name == "day-of-week" {
		return 7
	}
	return r.last
}

func (r *fieldReader) wrong(message, got, want string) error {
	return &fieldError{column: r.column, message: r.name + ": " + message, got: got, wanted: want}
}

func (r *fieldReader) read() (field, error) {
	f := field{star: r.dialect != robfig && strings.HasPrefix(r.word, "*")}
	for item := range strings.SplitSeq(r.word, ",") {
		text, shrunk, err := r.item(item)
		if err != nil {
			return f, err
		}
		f.items = append(f.items, text)
		f.shrunk = f.shrunk || shrunk && f.star
		f.star = f.star || r.dialect == robfig && text == "*"
	}
	if f.shrunk && len(f.items) > 1 {
		return f, r.wrong("a step beyond the range in a list", r.word, "the values themselves")
	}
	return f, nil
}

// item returns an item in forge's language. shrunk is set if a step beyond the field's end left only
// the first value of *.
func (r *fieldReader) item(item string) (text string, shrunk bool, err error) {
	base, step, stepped := strings.Cut(item, "/")
	switch {
	case r.dialect == robfig && base == "?":
		base = "*"
	case r.dialect == pgCron && r.name == "day-of-month" && item == "$":
		return "L", false, nil
	}
	if r.dialect != robfig && strings.Contains(base, "~") {
		text, err = r.random(item, base, stepped)
		return text, false, err
	}
	low, high, err := r.bounds(item, base, stepped)
	if err != nil {
		return "", false, err
	}
	if !stepped {
		return base, false, nil
	}
	n, err := r.step(item, step)
	if err != nil {
		return "", false, err
	}
	switch {
	case n == 1 && base == "*" && r.dialect == robfig:
		return "*", false, nil
	case low+n > min(high, r.last): // only the first value is left; forge rejects such a step
		return r.only(low, high, n), base == "*" && r.dialect != robfig, nil
	}
	return base + "/" + strconv.Itoa(n), false, nil
}

// only writes a range whose step leaves one value, or Sunday twice.
func (r *fieldReader) only(low, high, n int) string {
	if low%7 != 0 && high == 7 && low+n == 7 && r.name == "day-of-week" { // such as 1-7/6: Monday and Sunday
		return strconv.Itoa(low) + ",0"
	}
	return strconv.Itoa(low)
}

// bounds returns the first and the last value of *, a number or a range.
func (r *fieldReader) bounds(item, base string, stepped bool) (low, high int, err error) {
	if base == "*" {
		return r.low, r.top(), nil
	}
	from, to, ranged := strings.Cut(base, "-")
	if low, err = r.value(item, from); err != nil {
		return 0, 0, err
	}
	switch {
	case !ranged && stepped && r.dialect != robfig:
		return 0, 0, r.wrong("a step needs a range", item, fmt.Sprintf("%d-%d/%s, or the value alone", low, r.last, strings.TrimPrefix(item, base+"/")))
	case !ranged && stepped:
		return low, r.last, nil
	case !ranged:
		return low, low, nil
	}
	if high, err = r.value(item, to); err != nil {
		return 0, 0, err
	}
	if high < low {
		return 0, 0, r.wrong("the range runs backwards", item, fmt.Sprintf("the smaller value first, or two ranges such as %d-%d,%d-%d", low, r.last, r.low, high))
	}
	return low, high, nil
}

func (r *fieldReader) value(item, text string) (int, error) {
	want := fmt.Sprintf("%d to %d", r.low, r.top())
	if r.names != nil {
		want += ", or a name such as " + r.names[1]
		if i := slices.Index(r.names, strings.ToLower(text)); i >= 0 {
			return r.low + i, nil
		}
	}
	n, ok := digits(text)
	if !ok || n < r.low || n > r.top() {
		return 0, r.wrong("not a value", cmp.Or(item, r.word), want)
	}
	return n, nil
}

func (r *fieldReader) step(item, text string) (int, error) {
	n, ok := digits(text)
	if !ok || n < 1 {
		return 0, r.wrong("not a step", item, "a number of at least 1 after the slash")
	}
	return n, nil
}

// random translates a~b, a value that cron chooses anew whenever it reads the file, into H(a-b), a
// value that stays.
func (r *fieldReader) random(item, base string, stepped bool) (string, error) {
	if stepped {
		return "", r.wrong("a random value with a step", item, "it without the step")
	}
	from, to, _ := strings.Cut(base, "~")
	low, high := r.low, r.last
	var err error
	if from != "" {
		if low, err = r.value(item, from); err != nil {
			return "", err
		}
	}
	if to != "" {
		if high, err = r.value(item, to); err != nil {
			return "", err
		}
	}
	if high < low {
		return "", r.wrong("the range runs backwards", item, "the smaller value first")
	}
	r.notes = append(r.notes, fmt.Sprintf("%s %s: cron chooses a random value whenever it reads the file; H chooses one by the cron's name, which stays", r.name, item))
	return fmt.Sprintf("H(%d-%d)", low, high), nil
}

func digits(text string) (int, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}
