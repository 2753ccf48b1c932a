package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Unique is in what jobs of a kind must differ from those that are there to be
// added; nothing: they may be alike.
type Unique struct {
	ByArgs UniqueArgs `toml:"by_args,omitempty"`
	// ByPeriod is how long the stretches are, from midnight UTC on, of which each
	// has one job.
	ByPeriod Duration `toml:"by_period,omitzero" min:"1s" max:"366d"`
	ByQueue  bool     `toml:"by_queue,omitempty"`
	// ByState are the states of the jobs that count.
	// Default: all but cancelled and discarded.
	ByState []string `toml:"by_state,omitempty" oneof:"available|cancelled|completed|discarded|pending|retryable|running|scheduled"`
	Duplicates
}

// Duplicates is what becomes of a job that equals another one. At most one of Replace,
// Debounce and Throttle is set. Zero: it is not added.
type Duplicates struct {
	// Replace gives the waiting job the arguments of the duplicate.
	Replace bool `toml:"replace,omitempty"`
	// Debounce does so too, and makes the job due after this time.
	Debounce Duration `toml:"debounce,omitzero" min:"1s" max:"30d"`
	// MaxWait is the maximum wait since the first enqueue of a debounced job.
	// Default: ten times Debounce.
	MaxWait Duration `toml:"max_wait,omitzero" min:"1s" max:"366d"`
	// Throttle drops a duplicate of a job that was added less than this time ago.
	Throttle Duration `toml:"throttle,omitzero" min:"1s" max:"366d"`
}

// Set reports whether duplicates are treated differently from the default.
func (d Duplicates) Set() bool { return d != Duplicates{} }

// ParseDuplicates reads the options of one enqueue. others reports whether it also has options
// that exclude them. An error is an *ArgsError.
func ParseDuplicates(replace bool, debounce, maxWait, throttle string, others bool) (Duplicates, error) {
	d := Duplicates{Replace: replace}
	modes := 0
	for _, option := range []struct {
		name, text string
		target     *Duration
	}{{"debounce", debounce, &d.Debounce}, {"max_wait", maxWait, &d.MaxWait}, {"throttle", throttle, &d.Throttle}} {
		if option.text == "" {
			continue
		}
		tag := tableOf(reflect.TypeFor[Duplicates]())[option.name].tag
		low, high := tag.Get("min"), tag.Get("max")
		parsed, err := ParseDuration(option.text)
		if err != nil || parsed < mustDuration(low) || parsed > mustDuration(high) {
			return d, &ArgsError{option.name, "no duration, or out of range", Quote(option.text), low + " to " + high}
		}
		*option.target = parsed
	}
	for _, set := range []bool{d.Replace, d.Debounce > 0, d.Throttle > 0} {
		if set {
			modes++
		}
	}
	switch {
	case modes > 1:
		return d, &ArgsError{"replace", "options that exclude each other", "", "only one of replace, debounce and throttle"}
	case d.MaxWait > 0 && d.Debounce == 0:
		return d, &ArgsError{"max_wait", "without debounce", Quote(maxWait), "debounce too"}
	case d.MaxWait > 0 && d.MaxWait < d.Debounce:
		return d, &ArgsError{"max_wait", "less than debounce", Quote(maxWait), "at least " + debounce}
	case modes > 0 && others:
		return d, &ArgsError{"replace", "options that exclude each other", "", "replace, debounce and throttle only with a key of your own, or by arguments and queue"}
	}
	return d, nil
}

// UniqueArgs are the arguments that count, as JSON: true for all, or a list of names;
// empty: none.
type UniqueArgs string

// AllArgs means that all arguments count.
const AllArgs UniqueArgs = "true"

// MaxUniqueArgs is the maximum number of names in by_args.
const MaxUniqueArgs = 100

// Names returns the names of the arguments that count; nil for all or none.
func (a UniqueArgs) Names() []string {
	var names []string
	if a != AllArgs {
		_ = json.Unmarshal([]byte(a), &names) // of no other value
	}
	return names
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *UniqueArgs) UnmarshalJSON(text []byte) error {
	var names []string
	var all bool
	switch {
	case json.Unmarshal(text, &all) == nil:
		if *a = ""; all {
			*a = AllArgs
		}
	case json.Unmarshal(text, &names) != nil, len(names) > MaxUniqueArgs, slices.Contains(names, ""):
		return errors.New("want true, or a list of names")
	case len(names) > 0:
		*a = UniqueArgs(text)
	}
	return nil
}

// MarshalTOML implements toml.Marshaler.
func (a UniqueArgs) MarshalTOML() ([]byte, error) { return []byte(a), nil }

// uniqueArgs takes true, false or a list of names.
func (l *loader) uniqueArgs(path string, target *UniqueArgs, value any) {
	if all, ok := value.(bool); ok {
		if *target = ""; all {
			*target = AllArgs
		}
		return
	}
	const want = `true, or a list of their names such as ["document"]`
	items, ok := asList(value)
	if !ok || len(items) > MaxUniqueArgs {
		l.wrong(path, "wrong type", l.describe(field{}, value), want)
		return
	}
	var names []string
	for i, item := range items {
		name, ok := item.(string)
		if !ok || name == "" || strings.ContainsRune(name, 0) || slices.Contains(names, name) {
			l.wrong(element(path, i), "not the name of an argument, or twice", l.describe(field{}, item), want)
			return
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		l.wrong(path, "an empty list", "", want)
		return
	}
	text, _ := json.Marshal(names) // strings can always be encoded
	*target = UniqueArgs(text)
}

// MustCount are the states that always count: a job moves between them without
// asking whether another is there.
var MustCount = []string{"available", "pending", "running", "scheduled"}

// MissingStates are those of MustCount that states lack.
func MissingStates(states []string) []string {
	var missing []string
	for _, state := range MustCount {
		if !slices.Contains(states, state) {
			missing = append(missing, state)
		}
	}
	return missing
}

func (l *loader) checkUnique(path string, unique Unique) {
	states := path + ".by_state"
	known := l.ok(states) && !slices.Contains(unique.ByState, "") // a state that there is not is left empty
	if missing := MissingStates(unique.ByState); len(unique.ByState) > 0 && known && len(missing) > 0 {
		l.wrong(states, "without states that always count", strings.Join(unique.ByState, ", "), strings.Join(quotedAll(missing), ", ")+" too")
	}
	l.checkDuplicates(path, unique)
}

// checkDuplicates checks what becomes of duplicates.
func (l *loader) checkDuplicates(path string, unique Unique) {
	var modes []string
	for _, mode := range []string{"replace", "debounce", "throttle"} {
		if l.has(path+"."+mode) && (mode != "replace" || unique.Replace) {
			modes = append(modes, mode)
		}
	}
	if len(modes) > 1 {
		l.wrongKey(path+"."+modes[1], modes[0]+" and "+modes[1], "one of replace, debounce and throttle")
	}
	for _, other := range []string{"by_period", "by_state"} {
		if len(modes) > 0 && l.has(path+"."+other) {
			l.wrongKey(path+"."+other, other+" with "+modes[0], "only by_args and by_queue beside "+modes[0])
		}
	}
	wait := path + ".max_wait"
	switch {
	case !l.has(wait) || !l.ok(wait):
	case !l.has(path + ".debounce"):
		l.wrongKey(wait, "without debounce", "debounce too")
	case l.ok(path+".debounce") && unique.MaxWait < unique.Debounce:
		l.wrong(wait, "less than debounce", strconv.Quote(unique.MaxWait.String()), "at least "+unique.Debounce.String())
	}
}

// ReadUnique reads the JSON of a Unique, as the database returns it.
func ReadUnique(body []byte) (unique Unique, err error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var stored any
	if err := decoder.Decode(&stored); err != nil {
		return unique, err
	}
	return unique, restore("unique", reflect.ValueOf(&unique).Elem(), stored)
}
