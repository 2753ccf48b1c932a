package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// marker is a figure in a document: the bench, the name of the value, how it is printed,
// and the figure.
var marker = regexp.MustCompile(`(<!--bench:(\w+)\.([\w./-]+)((?: [/.]\d+)*)-->)([^<]*)(<!--/-->)`)

// opening finds every marker, even one that marker does not understand.
var opening = regexp.MustCompile(`<!--bench:`)

// fill returns a document with the figures of the results.
func fill(text string, results map[string]result) (string, error) {
	var errs []error
	filled := marker.ReplaceAllStringFunc(text, func(found string) string {
		groups := marker.FindStringSubmatch(found)
		figure, err := results[groups[2]].figure(groups[3], strings.Fields(groups[4]))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", groups[1], err))
		}
		return groups[1] + figure + groups[6]
	})
	if got, want := len(marker.FindAllString(text, -1)), len(opening.FindAllString(text, -1)); got != want {
		errs = append(errs, fmt.Errorf("%d of %d markers have another form than <!--bench:NAME.VALUE /N .N-->figure<!--/-->", want-got, want))
	}
	return filled, errors.Join(errs...)
}

// figure is one of the values, ratios or settings, as a document has it.
func (r result) figure(name string, format []string) (string, error) {
	value, ok := r.Values[name]
	if kind, rest, found := strings.Cut(name, "."); found {
		switch kind {
		case "ratios":
			value, ok = r.Ratios[rest]
		case "settings":
			if setting, ok := r.Settings[rest]; ok {
				return fmt.Sprint(setting), nil
			}
		}
	}
	if !ok {
		return "", errors.New("no result has this value")
	}
	digits := -1
	for _, f := range format {
		n, err := strconv.Atoi(f[1:])
		if err != nil || f == "/0" {
			return "", fmt.Errorf("%q is no format", f)
		}
		if f[0] == '/' {
			value /= float64(n)
		} else {
			digits = n
		}
	}
	return number(value, digits), nil
}

// number prints a value with commas between thousands.
func number(value float64, digits int) string {
	if digits < 0 {
		digits = 0
		if value < 10 && value != float64(int64(value)) {
			digits = 1
		}
	}
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(value, 'f', digits, 64), ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return whole
}
