package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/internal/pgtest"
)

// TestStateCommandsAreWatchable checks that commands named after showing or listing have --watch.
func TestStateCommandsAreWatchable(t *testing.T) {
	t.Parallel()
	showing := []string{"list", "show", "status", "history", "limits", "explain", "doctor", "events", "audit"}
	checked := 0
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if slices.Contains(showing, cmd.Name()) && !cmd.HasSubCommands() && cmd.CommandPath() != "forge config show" {
			checked++
			if cmd.Flags().ShorthandLookup("w") == nil || cmd.Flags().Lookup("interval") == nil || !strings.HasSuffix(cmd.Example, " --watch") {
				t.Errorf("%s has no --watch, or no example of it:\n%s", cmd.CommandPath(), cmd.Example)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(new(app).rootCommand())
	if checked < 20 {
		t.Errorf("%d commands were checked", checked)
	}
}

// TestWatchAppendsToAPipe checks what a program reads from the pipe of a command with --watch.
func TestWatchAppendsToAPipe(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"table", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			pool := pgtest.Connect(t, url)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			answers, out := io.Pipe()
			exit := make(chan int, 1)
			file := fileWith(t, "[database]\nurl = \""+url+"\"\n")
			go func() {
				exit <- run(ctx, []string{"queue", "list", "--watch", "--interval", "500ms", "-o", format, "--config", file}, out, t.Output())
				_ = out.Close()
			}()
			lines := bufio.NewScanner(answers)
			next := func() string {
				t.Helper()
				var answer strings.Builder
				for lines.Scan() {
					answer.WriteString(lines.Text() + "\n")
					if format == "json" || lines.Text() == "" {
						return answer.String()
					}
				}
				t.Fatalf("it ended: %v", lines.Err())
				return ""
			}
			first := next()
			if strings.Contains(first, "mail") || strings.Contains(first, "\x1b") {
				t.Errorf("the first answer is %q", first)
			}
			if _, err := pool.Exec(t.Context(), `INSERT INTO river_queue (name, updated_at) VALUES ('mail', now())`); err != nil {
				t.Fatal(err)
			}
			shown := next()
			for !strings.Contains(shown, "mail") { // read before the insert
				shown = next()
			}
			if format == "json" && !json.Valid([]byte(shown)) {
				t.Errorf("want one JSON document on a line, got %q", shown)
			}
			interrupt()
			if _, err := io.Copy(io.Discard, answers); err != nil {
				t.Fatal(err)
			}
			if code := <-exit; code != exitOK {
				t.Errorf("interrupted: exit %d", code)
			}
		})
	}
}

// TestWatchFailsWithItsFirstRun checks that a command whose first run fails exits as without --watch.
func TestWatchFailsWithItsFirstRun(t *testing.T) {
	t.Parallel()
	file := fileWith(t, "[database]\nurl = \""+pgtest.URL(t)+"\"\n")
	for line, want := range map[string]int{
		"job show 42 --watch":             exitNotFound,
		"cron show nothing -w":            exitNotFound,
		"job list --state lost -w":        exitUsage,
		"events --type nothing --watch":   exitUsage,
		"leader history --role nobody -w": exitNotFound,
	} {
		code, said := 0, ""
		for _, watch := range []bool{false, true} {
			var out, errs strings.Builder
			args := append(strings.Fields(line), "--config", file)
			if !watch {
				args = slices.DeleteFunc(args, func(arg string) bool { return arg == "-w" || arg == "--watch" })
			}
			got := run(t.Context(), args, &out, &errs)
			if watch && (got != code || errs.String() != said || got != want || out.Len() > 0) {
				t.Errorf("forge %s: exit %d, want %d\n%s%swant %s", line, got, want, out.String(), errs.String(), said)
			}
			code, said = got, errs.String()
		}
	}
}

// TestInterruptEndsARunOfWatch checks that an interrupt ends a run that waits, and that every run has a
// deadline.
func TestInterruptEndsARunOfWatch(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errs strings.Builder
	a := &app{out: &out, err: &errs, format: "table"}
	cmd := &cobra.Command{Use: "wait"}
	cmd.SetContext(ctx)
	readings := 0
	err := a.watch(cmd, nil, minRefresh, func(cmd *cobra.Command, _ []string) error {
		if until, ok := cmd.Context().Deadline(); !ok || time.Until(until) > refreshTimeout {
			t.Errorf("reading %d may take until %v, %t", readings, until, ok)
		}
		if readings++; readings == 2 {
			interrupt()
		}
		if readings > 1 {
			<-cmd.Context().Done()
			return cmd.Context().Err()
		}
		_, err := io.WriteString(a.out, "there\n")
		return err
	})
	if err != nil || readings != 2 || out.String() != "there\n\n" || errs.Len() > 0 {
		t.Errorf("%v after %d readings: %q, %q", err, readings, out.String(), errs.String())
	}
}

func TestFrameFitsTheWindow(t *testing.T) {
	t.Parallel()
	const home, row, below = "\x1b[H", "\x1b[K", "\x1b[J"
	for _, test := range []struct {
		name, text    string
		width, height int
		want          string
	}{
		{"room enough", "a\nb\n", 10, 3, home + row + "a\n" + below + "b"},
		{"just fits", "a\nb\nc\n", 10, 3, home + row + "a\n" + row + "b\n" + below + "c"},
		{"too many lines", "a\nb\nc\nd\n", 10, 3, home + row + "a\n" + row + "b\n" + below + "… 2 more"},
		{"a line of two rows", "abcdef\ng\nh\n", 4, 3, home + row + "abcd\n" + row + "ef\n" + below + "… 2 more"},
		{"a part of a line", "a\nabcdefghijklm\n", 4, 3, home + row + "a\n" + row + "abcd\n" + below + "… 1 more"},
		{"a last line of all rows that are left", "a\nabcdefgh\n", 4, 3, home + row + "a\n" + row + "abcd\n" + below + "efgh"},
		{"wide characters", "日本語\n", 5, 3, home + row + "日本\n" + below + "語"},
		{"tabs", "a\tb\n", 9, 3, home + below + "a       b"},
		{"one row", "a\nb\n", 10, 1, home + below + "… 2 more"},
		{"an unknown size", "abcdef\nb\nc\n", 0, 0, home + row + "abcdef\n" + row + "b\n" + below + "c"},
		{"orders to the terminal", "a\x1b[2Jb\x1b]0;title\x07c\n", 10, 3, home + below + "abc"},
		{"nothing", "", 10, 3, home + below},
	} {
		if got := frame(test.text, test.width, test.height); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
