package config

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// notOverrides are variables with forge's prefix that mean something else: those
// that jobs are given, and the one that names the file.
var notOverrides = []string{
	"FORGE_JOB_ID", "FORGE_JOB", "FORGE_ATTEMPT", "FORGE_CRON", "FORGE_TICK",
	"FORGE_TERM", "FORGE_NODE", "FORGE_ARGS", "FORGE_REPORT", "FORGE_ROLE", "FORGE_CONFIG",
}

// overrides applies the variables FORGE_SECTION_KEY, and DATABASE_URL when
// nothing else names the database.
func (l *loader) overrides() {
	keys := map[string]key{}
	for _, k := range scalarKeys() {
		keys[k.override()] = k
	}
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		if !strings.HasPrefix(name, "FORGE_") || slices.Contains(notOverrides, name) {
			continue
		}
		k, known := keys[name]
		switch {
		case !known:
			l.strange(name, slices.Collect(maps.Keys(keys)))
		case l.env[name] == "":
			l.warnVariable(name, "empty, and so ignored", "")
		default:
			l.override(k, name)
		}
	}
	if url := l.env["DATABASE_URL"]; url != "" && l.cfg.Database.URL == "" && l.ok("database.url") {
		l.given["database.url"] = "DATABASE_URL"
		l.cfg.Database.URL = url
	}
}

// overridden says whether a variable will override what the file gives at a path, which need then
// not be resolved.
func (l *loader) overridden(path string) bool {
	variable := key{path: path}.override()
	return l.env[variable] != "" && l.given[path] != variable &&
		slices.ContainsFunc(scalarKeys(), func(k key) bool { return k.path == path })
}

// override sets one key from its variable.
func (l *loader) override(k key, name string) {
	l.given[k.path] = name
	delete(l.broken, k.path)
	target := reflect.ValueOf(l.cfg).Elem().FieldByIndex(k.index)
	l.set(k.path, target, k.field, fromText(l.env[name], target))
}

// fromText turns a variable into what the file would have held; what does not
// fit stays a string for the error message.
func fromText(text string, target reflect.Value) any {
	if _, isDuration := reflect.TypeAssert[Duration](target); isDuration {
		return text
	}
	switch target.Kind() {
	case reflect.Int, reflect.Int64:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	case reflect.Bool:
		if b, err := strconv.ParseBool(text); err == nil {
			return b
		}
	case reflect.Slice:
		var items []any
		for item := range strings.SplitSeq(text, ",") {
			items = append(items, strings.TrimSpace(item))
		}
		return items
	}
	return text
}

// strange warns of a variable that looks like forge's own and is not.
func (l *loader) strange(name string, names []string) {
	want := ""
	if near := nearest(name, names); near != "" {
		want = near
	}
	l.warnVariable(name, "not a variable of forge, and so ignored", want)
}

func (l *loader) warnVariable(name, message, want string) {
	l.report.Problems = append(l.report.Problems, Problem{
		File: Environment, Key: name, Message: message, Want: want, Warning: true,
	})
}
