package transcripts

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// varying matches the values of an output that differ from run to run. The first alternative that matches
// counts; the name of its group is the kind of the value.
var varying = regexp.MustCompile(strings.Join([]string{
	`(?P<time>\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| UTC|[+-]\d\d:\d\d)?)`,
	`(?P<day>\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b)`,
	`(?P<ago>\b(now|\d+ (second|minute|hour)s? (ago|from now))\b)`,
	`(?P<duration>\b((\d+(\.\d+)?(ns|µs|ms|s|m|h))+)\b)`,
	`(?P<path>(/[\w.-]+)+/(\.forge|forge\.toml)\b)`,
	`(?P<address>\b127\.0\.0\.1:\d+)`,
	`(?P<user>"by": "[^"]*")`,
	`(?P<version>\bPostgreSQL [\d.]+)`,
	`(?P<build>\b(dev|v\d+\.[\w.+-]+) - )`, // forge's version in the list of nodes
	`(?P<node>\bnode-\d\b)`,
	`(?P<hash>\b[0-9a-f]{10,64}\b)`,
	`(?P<id>^\d+\b|\b(?:[Jj]ob|show|id|pid|kill -9|ticks) \d+|\bfired 1 [\d.]+[µm]?s \d+\b|\b\d{2,}\b|\b\d+ due ticks)`,
	`(?P<roles> +leads [a-z_]+ \(term \d+\).*$)`,
}, "|"))

// value is one value that differs from run to run.
type value struct{ kind, text string }

// normalize returns a line with a placeholder for each value, and the values.
func normalize(line string) (text string, values []value) {
	line = strings.Join(strings.Fields(line), " ")
	kinds := varying.SubexpNames()
	text = varying.ReplaceAllStringFunc(line, func(found string) string {
		for i, match := range varying.FindStringSubmatch(found) {
			if kinds[i] == "" || match == "" {
				continue
			}
			if kinds[i] == "roles" { // any node may lead
				return ""
			}
			values = append(values, value{kinds[i], match})
			return "<" + kinds[i] + ">"
		}
		return found
	})
	return text, values
}

// compare reports whether an output is as the page shows it, and which value of the run stands for which
// value of the page. Blank lines do not count.
func compare(want, got []string) (same bool, values map[string]string) {
	return compareLines(withoutBlank(want), withoutBlank(got))
}

func compareLines(want, got []string) (same bool, values map[string]string) {
	if len(want) == 0 {
		return len(got) == 0, nil
	}
	if want[0] == "..." {
		for skip := 0; skip <= len(got); skip++ {
			if same, values = compareLines(want[1:], got[skip:]); same {
				return true, values
			}
		}
		return false, nil
	}
	if len(got) == 0 {
		return false, nil
	}
	wantText, wantValues := normalize(want[0])
	gotText, gotValues := normalize(got[0])
	if wantText != gotText || len(wantValues) != len(gotValues) {
		return false, nil
	}
	same, rest := compareLines(want[1:], got[1:])
	if !same {
		return false, nil
	}
	values = map[string]string{}
	for i, v := range wantValues {
		values[number(v)] = number(gotValues[i])
	}
	maps.Copy(values, rest) // the later value counts
	return true, values
}

// digits matches the number of an id such as "job 42".
var digits = regexp.MustCompile(`\d+$`)

// number returns the number of an id, and another value as it is.
func number(v value) string {
	if v.kind != "id" {
		return v.text
	}
	return digits.FindString(v.text)
}

// substitute returns a command of the page with the values of the run.
func substitute(command string, values map[string]string) string {
	return varying.ReplaceAllStringFunc(command, func(found string) string {
		if run, ok := values[found]; ok {
			return run
		}
		if page := digits.FindString(found); page != "" && values[page] != "" {
			return strings.TrimSuffix(found, page) + values[page]
		}
		return found
	})
}

func withoutBlank(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.TrimSpace(line) == "" })
}
