package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/internal/redact"
)

// redacted stands in place of a secret.
const redacted = redact.Mark

// minSecret is the length from which a secret's value is redacted wherever it
// turns up. A shorter one is likely to be part of other words.
const minSecret = 6

// maxSecretFile bounds a file named by ${file:PATH}.
const maxSecretFile = 64 << 10

// secrets remembers where references stood and what they became, so that the
// values are never shown.
type secrets struct {
	// references by path, in the form jobs.NAME.url.
	references map[string]reference
	values     []string
}

// reference is a string as it was written and as it was resolved.
type reference struct {
	text, value string
	parts       []string // what each reference in it became
}

func (s *secrets) remember(path string, known reference) {
	if s.references == nil {
		s.references = map[string]reference{}
	}
	s.references[path] = known
}

// move gives what was remembered of one path to another.
func (s *secrets) move(from, to string) {
	if known, ok := s.references[from]; ok {
		s.references[to] = known
		delete(s.references, from)
	}
}

// handSecrets tells each job what its references became.
func (c *Config) handSecrets() {
	if len(c.secrets.references) == 0 {
		return
	}
	names := make(map[string]string, len(c.Jobs))
	for name := range c.Jobs {
		names[join("jobs", name)] = name
	}
	for _, path := range slices.Sorted(maps.Keys(c.secrets.references)) {
		for up := parent(path); up != ""; up = parent(up) {
			if name, ok := names[up]; ok {
				job := c.Jobs[name]
				job.secrets = append(job.secrets, c.secrets.references[path].parts...)
				c.Jobs[name] = job
			}
		}
	}
}

// Secrets are the values of the job's references.
func (j Job) Secrets() []string { return j.secrets }

// resolve replaces the references in a string. What they become is not read for
// references again.
func (l *loader) resolve(path, text string) string {
	var (
		b     strings.Builder
		parts []string
	)
	rest := text
	for {
		before, after, found := cutReference(rest)
		b.WriteString(before)
		if !found {
			break
		}
		body, tail, closed := strings.Cut(after, "}")
		if !closed {
			l.wrong(path, "reference without its closing brace", "", "${env:NAME} or ${file:PATH}")
			return ""
		}
		value, err := l.lookUp(body)
		if err != nil {
			l.wrong(path, err.Error(), "${"+clip(body)+"}", "${env:NAME} with a value or ${file:PATH} of mode 0640 or less")
			return ""
		}
		l.cfg.secrets.values = append(l.cfg.secrets.values, value)
		parts = append(parts, value)
		b.WriteString(value)
		rest = tail
	}
	if rest != text {
		l.cfg.secrets.remember(path, reference{text, b.String(), parts})
	}
	return b.String()
}

// cutReference finds the next ${env or ${file; any other ${ is plain text.
func cutReference(text string) (before, after string, found bool) {
	at := -1
	for _, opening := range []string{"${env", "${file"} {
		if i := strings.Index(text, opening); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len("${"):], true
}

// lookUp returns the value of env:NAME or file:PATH.
func (l *loader) lookUp(body string) (string, error) {
	scheme, name, ok := strings.Cut(body, ":")
	if !ok || name == "" {
		return "", errors.New("reference without a name")
	}
	if scheme == "file" {
		return readSecret(l.dir, name)
	}
	if scheme != "env" {
		return "", errors.New("unknown reference")
	}
	value, set := l.env[name]
	switch {
	case !set:
		return "", fmt.Errorf("the environment variable %s is not set", name)
	case value == "":
		return "", fmt.Errorf("the environment variable %s is empty", name)
	}
	return value, nil
}

// readSecret reads a file that nobody but its owner and its group may read: mounted secrets
// often belong to root and to the group of the process.
func readSecret(dir, path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", withoutPath(err))
	}
	switch {
	case !info.Mode().IsRegular():
		return "", errors.New("the secret is not a regular file")
	case info.Mode().Perm()&^0o640 != 0:
		return "", fmt.Errorf("the secret's file has mode %04o, more than 0640", info.Mode().Perm())
	case info.Size() > maxSecretFile:
		return "", fmt.Errorf("the secret's file is larger than %d bytes", maxSecretFile)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", withoutPath(err))
	}
	value := strings.TrimRight(string(content), "\r\n")
	switch {
	case value == "":
		return "", errors.New("the secret's file is empty")
	case strings.ContainsRune(value, 0):
		return "", errors.New("the secret's file holds a NUL byte")
	}
	return value, nil
}

// withoutPath returns the bare reason of a file error.
func withoutPath(err error) error {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError.Err
	}
	return err
}

// redactAddress hides the password in a URL or DSN.
func redactAddress(text string) string { return redact.Address(text) }

// redactBroken hides whatever may be the password in an address that cannot be
// read: one with a blank in it, or one whose password stands where the port does.
func redactBroken(address string) string {
	scheme, rest, isURL := strings.Cut(address, "://")
	if !isURL || strings.ContainsAny(scheme, ":@/= ") {
		return redactUserInfo(redactAddress(address))
	}
	userInfo, host := "", rest
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		userInfo, host = rest[:at], rest[at+1:]
	}
	if user, _, ok := strings.Cut(userInfo, ":"); ok {
		return scheme + "://" + user + ":" + redacted + "@" + redactAddress(host)
	}
	if name, port, ok := strings.Cut(host, ":"); ok && userInfo == "" {
		_, path, _ := strings.Cut(port, "/")
		return scheme + "://" + name + ":" + redacted + "/" + redactAddress(path)
	}
	return redactAddress(address)
}

// redactUserInfo hides what is between the first : and the last @.
func redactUserInfo(text string) string {
	user, rest, _ := strings.Cut(text, ":")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		return user + ":" + redacted + rest[at:]
	}
	return text
}

// Redacted returns a copy in which references stand as they were written. Their
// values are not left, nor are passwords in addresses, headers, variables, query
// parameters and arguments with telling names (Authorization, API_TOKEN), and what
// such a name stands before in a command, a body or a statement.
func (c *Config) Redacted() *Config {
	var values []string
	for _, value := range c.secrets.values {
		if len(value) >= minSecret {
			values = append(values, value)
		}
	}
	shown := c.hide(values)
	for i := range shown.Crons {
		hideArgs(shown.Crons[i].Args)
	}
	return shown
}

// hideArgs hides the arguments whose names tell of a secret, at every depth. The
// cluster's sections keep them: a change of an argument is a change of the cron.
func hideArgs(args map[string]any) {
	for name, value := range args {
		switch value := value.(type) {
		case map[string]any:
			hideArgs(value)
		case string:
			if value != "" && redact.Name(name) {
				args[name] = redacted
			}
		}
	}
}

// hide is Redacted for the given values; where a reference stood is known
// without them.
func (c *Config) hide(values []string) *Config {
	copied := rewrite(reflect.ValueOf(*c), "", c.hideText(values)).Interface().(Config) //nolint:forcetypeassert // rewrite keeps the type
	for name, job := range copied.Jobs {
		job.Command = redact.Words(job.Command)
		copied.Jobs[name] = job
	}
	return &copied
}

// hideText returns what hide makes of the text at a path.
func (c *Config) hideText(values []string) func(path, text string) string {
	return func(path, text string) string {
		if known, ok := c.secrets.references[path]; ok && known.value == text {
			return known.text
		}
		if holder := parent(path); strings.HasSuffix(holder, ".headers") || strings.HasSuffix(holder, ".env") {
			if redact.Name(strings.TrimPrefix(path, holder)) {
				return redacted
			}
		}
		for _, value := range values {
			text = strings.ReplaceAll(text, value, redacted)
		}
		return redactByKey(path, text)
	}
}

// redactByKey hides what the key of a text says is a secret. Passwords in URLs
// are hidden wherever they stand, such as in a command.
func redactByKey(path, text string) string {
	switch key := strings.TrimPrefix(path[len(parent(path)):], "."); {
	case text != "" && (notifySecret(path) || path == clientSecret):
		return redacted
	case key == "url" || key == "leader_url" || key == "database" || key == "api_url" || key == "proxy_url":
		return redactAddress(text)
	case key == "body" || key == "statement" || key == "sql":
		return redact.Text(text)
	}
	return redact.PasswordInURL(text)
}

// rewrite copies a value deeply, with every string in it changed.
func rewrite(v reflect.Value, path string, change func(path, text string) string) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	if v.Type() == reflect.TypeFor[Schema]() { // it has to stay JSON
		out.Set(v)
		return out
	}
	switch v.Kind() {
	case reflect.String:
		out.SetString(change(path, v.String()))
	case reflect.Struct:
		for _, f := range fieldsOf(v.Type()) {
			out.FieldByIndex(f.index).Set(rewrite(v.FieldByIndex(f.index), join(path, f.name), change))
		}
	case reflect.Map:
		rewriteMap(out, v, path, change)
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		}
		for i := range v.Len() {
			out.Index(i).Set(rewrite(v.Index(i), element(path, i), change))
		}
	case reflect.Interface:
		if !v.IsNil() {
			out.Set(rewrite(v.Elem(), path, change))
		}
	default:
		out.Set(v)
	}
	return out
}

func rewriteMap(out, v reflect.Value, path string, change func(path, text string) string) {
	if v.IsNil() {
		return
	}
	out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
	for name, item := range v.Seq2() {
		out.SetMapIndex(name, rewrite(item, join(path, name.String()), change))
	}
}

// warnLiteral warns of a password that stands in the file itself.
func (l *loader) warnLiteral(path, text string) {
	if _, ok := l.cfg.secrets.references[path]; ok || l.given[path] != "" || !l.has(path) {
		return
	}
	if redactAddress(text) != text {
		l.warn(path, "a password in the file", "${env:NAME} or ${file:PATH} in its place")
	}
}

// warnLiterals warns of headers and variables whose names tell of a secret that
// stands in the file itself.
func (l *loader) warnLiterals(path string, values map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		here := join(path, name)
		if _, ok := l.cfg.secrets.references[here]; !ok && l.has(here) && redact.Name(name) {
			l.warn(here, "a secret in the file", "${env:NAME} or ${file:PATH} in its place")
		}
	}
}
