package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// tree puts the decoded tree into the Config. It goes over the tree itself, not
// through the decoder's structs, to report every error at once and to take
// neither 60 for "60s" nor LEASE_DURATION for lease_duration.
func (l *loader) tree(tree map[string]any) {
	l.table("", reflect.ValueOf(l.cfg).Elem(), tree)
}

// table fills a struct.
func (l *loader) table(path string, target reflect.Value, table map[string]any) {
	fields := tableOf(target.Type())
	for _, name := range slices.Sorted(maps.Keys(table)) {
		here := join(path, name)
		f, ok := fields[name]
		if !ok {
			l.unknown(here, name, target.Type(), table[name])
			continue
		}
		l.set(here, target.FieldByIndex(f.index), f, table[name])
	}
}

// set puts one value into a field of a struct, an element or a map.
func (l *loader) set(path string, target reflect.Value, f field, value any) {
	if ofFile := l.isPart && strings.HasPrefix(path, "crons["); !ofFile && !l.has(path) {
		l.given[path] = ""
	}
	switch pointer := target.Addr().Interface().(type) {
	case *Duration:
		l.duration(path, pointer, f, value)
		return
	case *CatchUp:
		l.catchUp(path, pointer, f, value)
		return
	case *Instant:
		l.instant(path, pointer, f, value)
		return
	case *Schema:
		l.schema(path, pointer, value)
		return
	case *UniqueArgs:
		l.uniqueArgs(path, pointer, value)
		return
	case *map[string]any:
		l.args(path, pointer, value)
		return
	}
	switch target.Kind() {
	case reflect.String:
		l.str(path, target, f, value)
	case reflect.Bool:
		take(l, path, target.SetBool, f, value, "true or false, without quotes")
	case reflect.Int, reflect.Int64:
		l.integer(path, target, f, value)
	case reflect.Struct:
		if table, ok := l.asTable(path, f, value); ok {
			l.table(path, target, table)
		}
	case reflect.Map:
		l.mapping(path, target, f, value)
	case reflect.Slice:
		l.slice(path, target, f, value)
	default:
		panic(fmt.Sprintf("config: no rule for the type %s of %s", target.Type(), path))
	}
}

// take sets a value of the right type and refuses any other.
func take[T any](l *loader, path string, set func(T), f field, value any, want string) bool {
	typed, ok := value.(T)
	if !ok {
		l.wrong(path, "wrong type", l.describe(f, value), want)
		return false
	}
	set(typed)
	return true
}

func (l *loader) str(path string, target reflect.Value, f field, value any) {
	want := "a string"
	if words := f.tag.Get("oneof"); words != "" {
		want = quotedList(strings.Split(words, "|"))
	}
	text := ""
	if !take(l, path, func(s string) { text = s }, f, value, want) {
		return
	}
	if strings.ContainsRune(text, 0) { // PostgreSQL stores none
		l.wrong(path, "a NUL character", "", "text without it")
		return
	}
	if f.name == "overlap" && text == "forbid" {
		text = "skip" // the word that Kubernetes has for it
	}
	if f.refs() && !l.overridden(path) {
		if text = l.resolve(path, text); !l.ok(path) {
			return
		}
	}
	if l.oneOf(path, f, text) {
		target.SetString(text)
	}
}

// oneOf checks a string against the words that the field allows.
func (l *loader) oneOf(path string, f field, text string) bool {
	words := f.tag.Get("oneof")
	if words == "" || slices.Contains(strings.Split(words, "|"), text) {
		return true
	}
	want := quotedList(strings.Split(words, "|"))
	if near := nearest(text, strings.Split(words, "|")); near != "" {
		want = strconv.Quote(near)
	}
	l.wrong(path, "not a known value", strconv.Quote(clip(text)), want)
	return false
}

func (l *loader) catchUp(path string, target *CatchUp, f field, value any) {
	switch v := value.(type) {
	case bool:
		*target = "none"
		if v {
			*target = "all"
		}
	case string:
		text := v
		switch v { // an environment variable has no bool
		case "true":
			text = "all"
		case "false":
			text = "none"
		}
		if l.oneOf(path, f, text) {
			*target = CatchUp(text)
		}
	default:
		l.wrong(path, "wrong type", l.describe(f, value), `"none", "latest", "all", true or false`)
	}
}

func (l *loader) duration(path string, target *Duration, f field, value any) {
	if number, ok := value.(int64); ok {
		want := `a string such as "30s"`
		if number > 0 {
			want = fmt.Sprintf(`a string such as "%ds"`, number)
		}
		l.wrong(path, "duration without a unit", strconv.FormatInt(number, 10), want)
		return
	}
	text := ""
	if !take(l, path, func(s string) { text = s }, f, value, `a string such as "30s"`) {
		return
	}
	parsed, err := ParseDuration(text)
	if err != nil {
		l.wrong(path, err.Error(), strconv.Quote(clip(text)), durationExample(text))
		return
	}
	if l.durationBounds(path, f, parsed) {
		*target = parsed
	}
}

// durationExample shows the form of a duration, with the user's own number where
// it can.
func durationExample(text string) string {
	number, rest := 0, ""
	_, err := fmt.Sscanf(text+" .", "%d %s", &number, &rest)
	if err != nil || number <= 0 {
		return `a string such as "30s", "5m" or "24h"`
	}
	unit := "s"
	for _, u := range []string{"ms", "minute", "hour", "day", "week"} {
		if strings.HasPrefix(strings.ToLower(rest), u) {
			unit = strings.TrimRight(u, "inuteorayk")
			break
		}
	}
	if unit == "w" || unit == "d" || unit == "h" || unit == "m" || unit == "ms" || unit == "s" {
		return fmt.Sprintf(`a string such as "%d%s"`, number, unit)
	}
	return `a string such as "30s", "5m" or "24h"`
}

func (l *loader) durationBounds(path string, f field, d Duration) bool {
	low, high := f.tag.Get("min"), f.tag.Get("max")
	if low == "" {
		return true
	}
	if d < mustDuration(low) || d > mustDuration(high) {
		message := "out of range"
		if d == 0 {
			message = "zero duration"
		}
		l.wrong(path, message, strconv.Quote(d.String()), low+" to "+high)
		return false
	}
	return true
}

// mustDuration reads a duration of a struct tag.
func mustDuration(text string) Duration {
	d, err := ParseDuration(text)
	if err != nil {
		panic(fmt.Sprintf("config: tag %q: %v", text, err))
	}
	return d
}

func (l *loader) integer(path string, target reflect.Value, f field, value any) {
	want, low, high := "an integer", f.tag.Get("min"), f.tag.Get("max")
	if low != "" {
		want = "an integer from " + low + " to " + high
	}
	number := int64(0)
	if !take(l, path, func(n int64) { number = n }, f, value, want) {
		return
	}
	if low != "" && (number < mustInt(low) || number > mustInt(high)) {
		l.wrong(path, "out of range", strconv.FormatInt(number, 10), low+" to "+high)
		return
	}
	if target.OverflowInt(number) {
		l.wrong(path, "out of range", strconv.FormatInt(number, 10), "")
		return
	}
	target.SetInt(number)
}

// mustInt reads a number of a struct tag.
func mustInt(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("config: tag %q: %v", text, err))
	}
	return n
}

func (l *loader) asTable(path string, f field, value any) (map[string]any, bool) {
	table, ok := value.(map[string]any)
	if !ok {
		want := "a table"
		if _, repeated := value.([]map[string]any); repeated && !strings.ContainsAny(path, ".[") {
			want = "[" + path + "], not [[" + path + "]]"
		}
		l.wrong(path, "wrong type", l.describe(f, value), want)
	}
	return table, ok
}

// mapping fills a map whose keys the user chooses.
func (l *loader) mapping(path string, target reflect.Value, f field, value any) {
	table, ok := l.asTable(path, f, value)
	if !ok {
		return
	}
	if target.IsNil() {
		target.Set(reflect.MakeMap(target.Type()))
	}
	element := field{name: f.name, typ: target.Type().Elem(), tag: f.tag}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if strings.ContainsRune(name, 0) {
			l.wrongKey(join(path, name), "a NUL character in a name", "a name without it")
			continue
		}
		item := reflect.New(target.Type().Elem()).Elem()
		l.set(join(path, name), item, element, table[name])
		target.SetMapIndex(reflect.ValueOf(name), item)
	}
}

// slice fills a list of strings, of numbers or of tables.
func (l *loader) slice(path string, target reflect.Value, f field, value any) {
	items, ok := asList(value)
	if !ok {
		l.notAList(path, target, f, value)
		return
	}
	list := reflect.MakeSlice(target.Type(), len(items), len(items))
	inner := field{name: f.name, typ: target.Type().Elem(), tag: f.tag}
	for i, item := range items {
		l.set(element(path, i), list.Index(i), inner, item)
	}
	target.Set(list)
}

func asList(value any) ([]any, bool) {
	switch v := value.(type) {
	case []any:
		return v, true
	case []map[string]any:
		items := make([]any, len(v))
		for i := range v {
			items[i] = v[i]
		}
		return items, true
	}
	return nil, false
}

func (l *loader) notAList(path string, target reflect.Value, f field, value any) {
	text, isText := value.(string)
	switch target.Type().Elem().Kind() {
	case reflect.Struct:
		l.wrong(path, "wrong type", l.describe(f, value), "[["+path+"]] for each")
	case reflect.String:
		want := "a list of strings"
		if isText && f.name == "command" {
			want = argv(text)
		} else if isText {
			want = fmt.Sprintf("a list such as [%q]", clip(text))
		}
		l.wrong(path, "wrong type", l.describe(f, value), want)
	default:
		l.wrong(path, "wrong type", l.describe(f, value), "a list such as [200]")
	}
}

// argv shows a command line as the list that it should have been.
func argv(line string) string {
	words := strings.Fields(line)
	if strings.ContainsAny(line, "|&;<>()$`\\\"'*?[]#~=%{}\n") {
		words = []string{"sh", "-c", line}
	}
	return "a list of its words, command = [" + strings.Join(quotedAll(words), ", ") + "]"
}
