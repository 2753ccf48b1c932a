package importer

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/internal/config"
)

// Write writes the result as TOML that forge check accepts. The source's comments stand before
// their crons; what was refused and what forge does differently stands there as comments.
func (r *Result) Write(w io.Writer) error {
	var b strings.Builder
	comment(&b, "", fmt.Sprintf("Imported from %s. Nothing is applied: check the file with forge check, and see what it adds with forge plan.", r.Source))
	for _, line := range r.Header {
		comment(&b, "Note: ", line)
	}
	for _, entry := range r.Entries {
		b.WriteString("\n")
		entry.write(&b)
	}
	if b.Len() > maxOutput {
		return fmt.Errorf("%s becomes %d bytes, and forge reads files of at most 1 MiB; want fewer crons, in several imports", r.Source, b.Len())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (e *Entry) write(b *strings.Builder) {
	for _, line := range e.Comments {
		comment(b, "", line)
	}
	for _, problem := range e.Refused {
		comment(b, "Not imported: ", problem.String())
	}
	if len(e.Refused) > 0 {
		for line := range strings.SplitSeq(e.Text, "\n") {
			comment(b, "  ", line)
		}
		return
	}
	for _, note := range e.Notes {
		comment(b, "Note: ", note)
	}
	if e.Cron.Name == "" {
		return
	}
	writeJob(b, e.Cron.Job, e.Work)
	b.WriteString("\n")
	writeCron(b, e.Cron)
}

// comment writes a comment, each line of it with its own mark.
func comment(b *strings.Builder, mark, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.Map(func(r rune) rune {
			if r < ' ' && r != '\t' || r == 0x7f {
				return ' '
			}
			return r
		}, line)
		b.WriteString(strings.TrimRight("# "+mark+line, " ") + "\n")
	}
}

func writeJob(b *strings.Builder, name string, job config.Job) {
	fmt.Fprintf(b, "[jobs.%s]\n", bareOrQuoted(name))
	key(b, "kind", job.Kind)
	if len(job.Command) > 0 {
		words := make([]string, len(job.Command))
		for i, word := range job.Command {
			words[i] = quote(word)
		}
		fmt.Fprintf(b, "command = [%s]\n", strings.Join(words, ", "))
	}
	key(b, "statement", job.Statement)
	key(b, "database", job.Database)
	if len(job.Env) > 0 {
		fmt.Fprintf(b, "env = %s\n", inline(job.Env))
	}
	key(b, "cwd", job.Cwd)
	key(b, "user", job.User)
	if job.Timeout > 0 {
		key(b, "timeout", job.Timeout.String())
	}
	if job.Retry.MaxAttempts > 0 {
		retry := fmt.Sprintf("max_attempts = %d", job.Retry.MaxAttempts)
		if job.Retry.Backoff > 0 {
			retry += fmt.Sprintf(", backoff = %s, max_backoff = %s", quote(job.Retry.Backoff.String()), quote(job.Retry.MaxBackoff.String()))
		}
		fmt.Fprintf(b, "retry = { %s }\n", retry)
	}
}

func writeCron(b *strings.Builder, cron config.Cron) {
	b.WriteString("[[crons]]\n")
	key(b, "name", cron.Name)
	key(b, "schedule", cron.Schedule)
	key(b, "timezone", cron.Timezone)
	key(b, "job", cron.Job)
	if cron.Paused {
		b.WriteString("paused = true\n")
	}
	key(b, "overlap", cron.Overlap)
	key(b, "catch_up", string(cron.CatchUp))
	if cron.CatchUpWindow > 0 {
		key(b, "catch_up_window", cron.CatchUpWindow.String())
	}
	key(b, "dst_missing", cron.DSTMissing)
	key(b, "dst_repeated", cron.DSTRepeated)
	if cron.Jitter > 0 {
		key(b, "jitter", cron.Jitter.String())
	}
}

// key writes a string, unless it is empty.
func key(b *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(b, "%s = %s\n", name, quote(value))
	}
}

func inline(values map[string]string) string {
	pairs := make([]string, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, bareOrQuoted(name)+" = "+quote(values[name]))
	}
	return "{ " + strings.Join(pairs, ", ") + " }"
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func bareOrQuoted(name string) string {
	if bareKey.MatchString(name) {
		return name
	}
	return quote(name)
}

// quote returns a string of TOML on one line: a literal one if that saves escapes.
func quote(text string) string {
	if strings.ContainsAny(text, `"\`) && !strings.ContainsFunc(text, func(r rune) bool { return r == '\'' || r < ' ' || r == 0x7f }) {
		return "'" + text + "'"
	}
	var b strings.Builder
	encoder := json.NewEncoder(&b) // whose escapes are also TOML's
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string always encodes
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007F`)
}
