package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/internal/argschema"
)

// Schema is the JSON schema of a job's args, as compact JSON; empty: any args.
type Schema string

const wantSchema = `a JSON schema: a table, its text, or the path of a file`

// schema takes a table, the text of a schema, or the path of a file with it.
func (l *loader) schema(path string, target *Schema, value any) {
	var text []byte
	var err error
	switch v := value.(type) {
	case map[string]any:
		if !l.plain(path, v) {
			return
		}
		text, err = json.Marshal(v)
	case string:
		if text = []byte(v); !strings.HasPrefix(strings.TrimSpace(v), "{") {
			text, err = l.schemaFile(v)
		}
	default:
		l.wrong(path, "wrong type", l.describe(field{}, value), wantSchema)
		return
	}
	if err == nil {
		_, err = l.compiled(Schema(text))
	}
	if err == nil {
		err = checkObject("", wantSchema, text)
	}
	var compact bytes.Buffer
	if err == nil {
		err = json.Compact(&compact, text)
	}
	if err != nil {
		l.wrong(path, "not a schema: "+err.Error(), "", "")
		return
	}
	*target = Schema(compact.String())
}

// schemaFile reads a schema; a path that is relative starts where the file is.
func (l *loader) schemaFile(path string) ([]byte, error) {
	if path == "" {
		return nil, errors.New("an empty path")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(l.dir, path)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, withoutPath(err))
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: not a regular file", path)
	case info.Size() > argschema.MaxSize:
		return nil, fmt.Errorf("%s: %d bytes; want at most %d KiB", path, info.Size(), argschema.MaxSize>>10)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, withoutPath(err))
	}
	return text, nil
}

// compiled compiles each schema of the file once.
func (l *loader) compiled(schema Schema) (*argschema.Schema, error) {
	if known, ok := l.schemas[schema]; ok {
		return known, nil
	}
	compiled, err := argschema.Compile([]byte(schema))
	if err != nil {
		return nil, err
	}
	if l.schemas == nil {
		l.schemas = map[Schema]*argschema.Schema{}
	}
	l.schemas[schema] = compiled
	return compiled, nil
}

// checkJobSchema checks the schema of a job that was built in Go.
func (l *loader) checkJobSchema(path string, job Job) {
	if job.Schema == "" || !l.ok(path) {
		return
	}
	if _, err := l.compiled(job.Schema); err != nil {
		l.wrong(path, "not a schema: "+err.Error(), "", "")
	}
}

// checkCronArgs holds a cron's args to the schema of its job.
func (l *loader) checkCronArgs(path string, cron Cron) {
	_, job, ok := l.cfg.JobFor(cron)
	if !ok || job.Schema == "" || !l.ok(path) {
		return
	}
	schema, err := l.compiled(job.Schema)
	if err != nil {
		return // checkJobSchema has said it
	}
	var text []byte
	if len(cron.Args) > 0 {
		if text, err = json.Marshal(cron.Args); err != nil {
			return // checkArgs or plain has said it
		}
	}
	for _, mismatch := range schema.Check(text) {
		wrong := argsErrorOf(path, mismatch)
		where := wrong.Path
		for where != path && !l.stands(where) {
			where = parent(where)
		}
		l.add(where, false, Problem{Message: within(wrong.Path, where) + wrong.Message, Got: wrong.Got, Want: wrong.Want})
	}
}

// within words the rest of a path that has no place in the file.
func within(path, where string) string {
	if rest := strings.TrimPrefix(strings.TrimPrefix(path, where), "."); rest != "" {
		return strconv.Quote(rest) + " is "
	}
	return ""
}

// SchemaError is what the schema of a kind refuses in a job's args.
type SchemaError []*ArgsError

// mostMismatches bounds those that an error names.
const mostMismatches = 10

// Error names them one after the other.
func (e SchemaError) Error() string {
	texts := make([]string, 0, mostMismatches+1)
	for i, wrong := range e {
		if i == mostMismatches {
			texts = append(texts, fmt.Sprintf("and %d more", len(e)-i))
			break
		}
		texts = append(texts, wrong.Error())
	}
	return strings.Join(texts, "; ")
}

// CheckArgsBy returns a SchemaError for args that a schema refuses. An empty schema
// refuses none.
func CheckArgsBy(schema Schema, args json.RawMessage) error {
	if schema == "" {
		return nil
	}
	compiled, err := argschema.Compile([]byte(schema))
	if err != nil {
		return fmt.Errorf("read the schema of the args: %w", err)
	}
	var wrong SchemaError
	for _, mismatch := range compiled.Check(args) {
		wrong = append(wrong, argsErrorOf("args", mismatch))
	}
	if wrong == nil {
		return nil
	}
	return wrong
}

func argsErrorOf(path string, mismatch argschema.Mismatch) *ArgsError {
	for _, step := range mismatch.At {
		switch at := step.(type) {
		case int:
			path = element(path, at)
		case string:
			path = join(path, at)
		}
	}
	return &ArgsError{path, mismatch.Message, mismatch.Got, mismatch.Want}
}
