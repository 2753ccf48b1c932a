package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// completions returns what the shell is offered for a command line, without descriptions.
func completions(t *testing.T, line ...string) []string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), append([]string{"__complete"}, line...), &out, &errs); code != exitOK {
		t.Fatalf("complete %q: exit %d: %s", line, code, errs.String())
	}
	var words []string
	for line := range strings.Lines(out.String()) {
		if word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); !strings.HasPrefix(word, ":") {
			words = append(words, word)
		}
	}
	return words
}

// TestNamesAreCompleted checks what is offered for each sort of names, from a database.
func TestNamesAreCompleted(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	path := fileWith(t, fmt.Sprintf("[database]\nurl = %q\n[jobs.report]\nkind = \"shell\"\ncommand = [\"true\"]\nqueue = \"mail\"\n"+
		"[[crons]]\nname = \"nightly\"\nschedule = \"@daily\"\njob = \"report\"\n[[crons]]\nname = \"hourly\"\nschedule = \"@hourly\"\njob = \"report\"\n"+
		"[[alerts]]\nname = \"NoLeader\"\ncondition = \"forge_leader_is_leader == 0\"\n", url))
	for _, line := range [][]string{{"apply", "--yes"}, {"job", "enqueue", "report"}, {"token", "create", "ci"}} {
		var out bytes.Buffer
		if code := run(t.Context(), append(line, "--config", path), &out, &out); code != exitOK {
			t.Fatalf("forge %q: exit %d: %s", line, code, out.String())
		}
	}
	if _, err := pgtest.Connect(t, url).Exec(t.Context(), `INSERT INTO forge_leaders (role, term) VALUES ('nightly-role', 0) ON CONFLICT DO NOTHING`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, want string }{
		{"cron show ", "hourly nightly"},
		{"cron show n", "nightly"},
		{"cron why nightly ", ""},
		{"cron show nightly ", ""},
		{"cron pause nightly ", "hourly"},
		{"job list --cron ", "hourly nightly"},
		{"job list --queue m", "mail"},
		{"job show ", "1"},
		{"job cancel 1 ", ""},
		{"queue show m", "mail"},
		{"alerts silence ", "NoLeader"},
		{"token revoke ", "ci"},
		{"job enqueue ", "report"},
		{"job list --kind r", "report"},
		{"job list --state r", "retryable running"},
		{"leader step-down n", "nightly-role"},
		{"leader history --role s", "scheduler"},
		{"job list -o j", "json"},
		{"token create x --scope a", "admin"},
		{"node show ", ""},
		{"cron list --sort n", "name next"},
		{"audit --outcome d", "done"},
	} {
		words := strings.Split(c.line, " ")
		line := append([]string{"--config", path}, words...)
		if got := strings.Join(completions(t, line...), " "); got != c.want {
			t.Errorf("forge %s: offered %q, want %q", c.line, got, c.want)
		}
	}
}

// TestCompletionIsQuietWithoutADatabase checks that the shell sees no error, soon, if the database or
// the configuration cannot be used.
func TestCompletionIsQuietWithoutADatabase(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"[database]\nurl = \"postgres://192.0.2.1/none\"\n", "[database]\nurl = 7\n", ""} {
		var out, errs bytes.Buffer
		begin := time.Now()
		code := run(t.Context(), []string{"__complete", "--config", fileWith(t, text), "cron", "show", ""}, &out, &errs)
		if code != exitOK || strings.TrimSpace(out.String()) != ":4" || strings.Contains(errs.String(), "forge:") {
			t.Errorf("%q: exit %d\n%s\n%s", text, code, out.String(), errs.String())
		}
		if took := time.Since(begin); took > 20*completionTimeout {
			t.Errorf("%q: took %s", text, took)
		}
	}
}

// TestNamedThingsHaveCompletion checks that no argument or flag that names something was forgotten.
func TestNamedThingsHaveCompletion(t *testing.T) {
	t.Parallel()
	named := []string{"kind", "queue", "cron", "role", "state", "to", "output", "sort"}
	eachLeaf(new(app).rootCommand(), func(cmd *cobra.Command) {
		_, arguments, takes := strings.Cut(cmd.Use, " ")
		if takes && cmd.ValidArgsFunction == nil && !strings.Contains(arguments, "FILE") && !strings.Contains(arguments, "DIR") && !strings.Contains(arguments, "--") {
			t.Errorf("%s: nothing completes %s", cmd.CommandPath(), arguments)
		}
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if !slices.Contains(named, flag.Name) || strings.Contains(flag.Usage, "RFC 3339") {
				return
			}
			if _, ok := cmd.GetFlagCompletionFunc(flag.Name); !ok {
				t.Errorf("%s: nothing completes --%s", cmd.CommandPath(), flag.Name)
			}
		})
	})
}
