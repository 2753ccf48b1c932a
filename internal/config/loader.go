package config

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/redact"
)

// loader turns one text, and the environment, into a Config and a Report.
type loader struct {
	name string
	dir  string // where ${file:PATH} starts
	env  map[string]string
	now  func() time.Time // what warnings look ahead from
	// onHost has the jobs checked against this host too.
	onHost bool
	judge  func(Alert, time.Duration) []Problem // may be nil
	cfg    *Config
	ix     *index
	// given holds the paths that the file or the environment sets; the value
	// is the environment variable, or "".
	given map[string]string
	// broken holds the paths whose value could not be taken.
	broken map[string]bool
	// aliases lead from a job in the short form to its cron.
	aliases map[string]string
	schemas map[Schema]*argschema.Schema // that were compiled
	// zoneErrors are the errors of wrong time zones, jobHints counts the unknown jobs for which
	// the nearest name was searched.
	zoneErrors map[string]error
	jobHints   int
	report     Report

	path   string // of the file itself; empty where there is none
	isPart bool   // the file is included: a source keeps what its crons give
	limits limits
	// included are the included files in the order of their crons, and jobFiles those of
	// their jobs by path.
	included []*source
	crons    int    // of all files that were read
	root     string // dir without links, once a file was included
	jobFiles map[string]*source
	// directories are those of included files whose modes were checked.
	directories map[string]bool
}

func newLoader(name string, options LoadOptions) *loader {
	if options.now == nil {
		options.now = time.Now
	}
	if options.limits == (limits{}) {
		options.limits = defaultLimits
	}
	return &loader{
		name: name, dir: options.dir, now: options.now, onHost: options.onHost, env: options.environ(), judge: options.JudgeAlert,
		cfg: Default(), ix: newIndex(""),
		given: map[string]string{}, broken: map[string]bool{}, aliases: map[string]string{}, zoneErrors: map[string]error{},
		path: options.path, limits: options.limits, jobFiles: map[string]*source{}, directories: map[string]bool{},
	}
}

// add reports a problem at a path: at its key, or at its value.
func (l *loader) add(path string, atKey bool, p Problem) {
	path = l.written(path)
	found, ok := l.spot(path)
	p.File, p.Key = found.file, found.key
	switch variable := l.given[path]; {
	case variable != "":
		p.File, p.Key = Environment, variable
	case !ok:
	case atKey:
		p.Line, p.Col = found.position(found.place.key)
	default:
		p.Line, p.Col = found.position(found.place.value)
	}
	l.report.Problems = append(l.report.Problems, p)
	if !p.Warning {
		l.broken[path] = true
	}
}

// written returns the path as it stands in the file.
func (l *loader) written(path string) string {
	if !strings.HasPrefix(path, "jobs.") {
		return path // only jobs have aliases
	}
	for up := path; up != ""; up = parent(up) {
		if cron, ok := l.aliases[up]; ok {
			rest := path[len(up):]
			if rest == ".statement" {
				rest = ".sql"
			}
			return cron + rest
		}
	}
	return path
}

// wrong reports an error of a value.
func (l *loader) wrong(path, message, got, want string) {
	l.add(path, false, Problem{Message: message, Got: got, Want: want})
}

// wrongKey reports an error of a key.
func (l *loader) wrongKey(path, message, want string) {
	l.add(path, true, Problem{Message: message, Want: want})
}

// warn reports what deserves a look.
func (l *loader) warn(path, message, want string) {
	l.add(path, false, Problem{Message: message, Want: want, Warning: true})
}

// ok says whether the value at a path was taken, or left out.
func (l *loader) ok(path string) bool { return !l.broken[l.written(path)] }

// has says whether a value was given at a path.
func (l *loader) has(path string) bool {
	path = l.written(path)
	if _, given := l.given[path]; given {
		return true
	}
	file, local := l.file(path)
	return file != nil && file.has(local)
}

// at reports an error of the text itself.
func (l *loader) at(offset int, p Problem) {
	p.File = l.name
	p.Line, p.Col = l.ix.position(offset)
	l.report.Problems = append(l.report.Problems, p)
}

// load reads the text and then the environment, and checks the whole.
func (l *loader) load(text string) {
	text = strings.TrimPrefix(text, "\ufeff")
	tree, ok := l.decode(text)
	if ok {
		l.report.Empty = len(tree) == 0
		l.tree(tree)
	}
	l.overrides()
	if ok && l.include() {
		l.complete()
		l.cfg.handSecrets()
		l.check()
		if l.onHost {
			l.checkHost()
		}
	}
	l.report.sort(l.name)
}

// decode returns the tree of the text.
func (l *loader) decode(text string) (map[string]any, bool) {
	if problem, offset := badEncoding(text); problem.Message != "" {
		l.ix = newIndex(text)
		l.at(offset, problem)
		return nil, false
	}
	ix, offset, err := scan(text)
	l.ix = ix
	switch {
	case errors.Is(err, errTooDeep):
		l.at(offset, Problem{Message: errTooDeep.Error(), Want: fmt.Sprintf("at most %d levels", maxNesting)})
		return nil, false
	case errors.Is(err, errKeyLength):
		l.at(offset, Problem{Message: errKeyLength.Error(), Want: fmt.Sprintf("at most %d bytes with all its parts", maxKeyLength)})
		return nil, false
	case err != nil:
		text = upTo(text, offset)
	}
	tree := map[string]any{}
	if _, decodeErr := toml.Decode(text, &tree); decodeErr != nil {
		l.syntax(decodeErr)
		return nil, false
	}
	if err != nil {
		l.at(offset, Problem{Message: err.Error()})
	}
	return tree, err == nil
}

// upTo cuts the text a little after the offset at which it went wrong, so that
// the decoder finds and names the mistake but reads nothing unbounded after it.
func upTo(text string, offset int) string {
	const enough = 64
	end := min(len(text), offset+enough)
	if line := strings.IndexByte(text[offset:end], '\n'); line >= 0 {
		end = offset + line + 1
	}
	return strings.ToValidUTF8(text[:end], "")
}

// badEncoding says what in a text is not UTF-8 without NUL.
func badEncoding(text string) (p Problem, offset int) {
	const want = "UTF-8"
	if strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
		return Problem{Message: "the file is UTF-16", Want: want}, 0
	}
	if i := strings.IndexByte(text, 0); i >= 0 {
		return Problem{Message: "a NUL byte", Want: want + " text"}, i
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			return Problem{Message: "invalid UTF-8", Got: fmt.Sprintf("byte 0x%02x", text[i]), Want: want}, i
		}
		i += size
	}
	return Problem{}, 0
}

// syntax reports the decoder's error with what would have been right, where that
// can be told.
func (l *loader) syntax(err error) {
	var parse toml.ParseError
	if !errors.As(err, &parse) {
		l.at(0, Problem{Message: err.Error()})
		return
	}
	p := Problem{Key: parse.LastKey, Message: strings.TrimSuffix(parse.Message, ".")}
	line := lineAt(l.ix.text, parse.Position.Start)
	switch {
	case quotesSecret(p, line):
		p.Message, p.Want = "not a TOML value", "a string in quotes"
	case strings.ContainsAny(line, "“”‘’"):
		p.Want = `straight quotes, " or '`
	case strings.Contains(p.Message, "already"):
		for _, section := range []string{"crons", "alerts"} {
			if strings.Contains(line, "["+section+"]") {
				p.Want = "[[" + section + "]]"
			}
		}
	}
	l.at(parse.Position.Start, p)
}

// quotesSecret says whether the decoder's message quotes what a line gives to a key that
// may hold a secret.
func quotesSecret(p Problem, line string) bool {
	name := strings.Trim(p.Key[strings.LastIndexByte(p.Key, '.')+1:], `"`)
	if !mayBeSecret(name) && !redact.Name(name) {
		return false
	}
	plain := strings.NewReplacer(" ", "", "\t", "", `"`, "", "'", "").Replace(line)
	return strings.Contains(plain, name+"=") && (strings.ContainsAny(p.Message, `"'`) || strings.Contains(p.Message, "out of range"))
}

func lineAt(text string, offset int) string {
	offset = max(0, min(offset, len(text)))
	start := strings.LastIndexByte(text[:offset], '\n') + 1
	end := strings.IndexByte(text[offset:], '\n')
	if end < 0 {
		return text[start:]
	}
	return text[start : offset+end]
}
