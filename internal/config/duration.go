package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration written as a string such as "750ms", "30s",
// "24h", "90d" or "2w".
type Duration time.Duration

const (
	day  = 24 * time.Hour
	week = 7 * day
)

var units = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond,
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": day, "w": week,
}

var (
	errDurationSyntax   = errors.New("not a duration")
	errDurationUnit     = errors.New("duration without a unit")
	errDurationSign     = errors.New("negative duration")
	errDurationOverflow = errors.New("duration too long")
)

// Std returns d as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// ParseDuration reads a sequence of numbers with units, such as "1h30m". The
// units are ns, us, ms, s, m, h, d (24 hours) and w (7 days). There is no sign.
func ParseDuration(text string) (Duration, error) {
	switch {
	case text == "":
		return 0, errDurationSyntax
	case strings.HasPrefix(text, "-"):
		return 0, errDurationSign
	case text == "0":
		return 0, nil
	}
	var total time.Duration
	for rest := text; rest != ""; {
		part, tail, err := leadingDuration(rest)
		if err != nil {
			return 0, err
		}
		if part > math.MaxInt64-total {
			return 0, errDurationOverflow
		}
		total, rest = total+part, tail
	}
	return Duration(total), nil
}

// leadingDuration reads one number and its unit.
func leadingDuration(text string) (d time.Duration, rest string, err error) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789."))
	if digits == 0 {
		return 0, "", errDurationSyntax
	}
	tail := text[digits:]
	letters := strings.IndexAny(tail, "0123456789.")
	if letters < 0 {
		letters = len(tail)
	}
	unit, ok := units[tail[:letters]]
	switch {
	case tail == "":
		return 0, "", errDurationUnit
	case !ok:
		return 0, "", errDurationSyntax
	}
	d, err = times(text[:digits], unit)
	return d, tail[letters:], err
}

// times multiplies without the rounding that a float would bring to whole
// numbers.
func times(number string, unit time.Duration) (time.Duration, error) {
	if whole, err := strconv.ParseInt(number, 10, 64); err == nil {
		if whole > math.MaxInt64/int64(unit) {
			return 0, errDurationOverflow
		}
		return time.Duration(whole) * unit, nil
	} else if errors.Is(err, strconv.ErrRange) {
		return 0, errDurationOverflow
	}
	fraction, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, errDurationSyntax
	}
	if product := fraction * float64(unit); product < math.MaxInt64 {
		return time.Duration(product), nil
	}
	return 0, errDurationOverflow
}

// String returns the shortest text that ParseDuration reads as d: "90d", "24h",
// "1m30s".
func (d Duration) String() string {
	std := d.Std()
	if std >= 2*day && std%day == 0 {
		return strconv.FormatInt(int64(std/day), 10) + "d"
	}
	text := std.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarshalText lets d be written as a string in TOML and JSON.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}
