package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

func TestEnqueueRejectsInvalidArgs(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"[1]":              `--args: not an object; want a JSON object such as {"name":"Ada"}`,
		"name=Ada":         `--args: not JSON: invalid character 'a' in literal null (expecting 'u'); want a JSON object such as {"name":"Ada"}`,
		`{"a":"\u0000"}`:   "--args.a: a NUL character, which PostgreSQL's jsonb refuses; want text without it",
		"{\"a\":\"\xff\"}": "--args: invalid UTF-8 (got byte 0xff at offset 6); want UTF-8",
		`{"a":"` + strings.Repeat("x", 64<<10-7) + `"}`: "--args: too large (got 65537 bytes as JSON); want at most 64 KiB",
	} {
		err := fillJob(&jobstore.NewJob{}, args, "")
		if err == nil || err.Error() != want {
			t.Errorf("%.80s: got %v, want %s", args, err, want)
		}
		if _, err := parseArgs(args); err == nil || err.Error() != want {
			t.Errorf("%.80s for a cron: got %v, want %s", args, err, want)
		}
	}
}

func TestEnqueueRejectsYearsBeyondJSON(t *testing.T) {
	t.Parallel()
	const late, early = "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"
	for at, want := range map[string]string{
		late:  `--at "` + late + `": out of range (got the year 10000); want a time in the years 1 to 9999 of UTC`,
		early: `--at "` + early + `": out of range (got the year 0); want a time in the years 1 to 9999 of UTC`,
	} {
		if err := fillJob(&jobstore.NewJob{}, "{}", at); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", at, err, want)
		}
	}
	if err := fillJob(&jobstore.NewJob{}, "{}", "9999-12-31T23:59:59Z"); err != nil {
		t.Error(err)
	}
}

// TestEnqueueIsUnique checks that uniqueness comes from the configuration in force unless flags
// give it, and that a duplicate is reported.
func TestEnqueueIsUnique(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	path := filepath.Join(t.TempDir(), "forge.toml")
	text := "[database]\nurl = \"" + url + "\"\n[jobs.report]\nkind = \"shell\"\ncommand = [\"true\"]\nunique = { by_args = true, by_period = \"366d\" }\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := forge.LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := forge.Apply(t.Context(), pgtest.Connect(t, url), cfg, true); err != nil {
		t.Fatal(err)
	}
	enqueue := func(want string, flags ...string) {
		t.Helper()
		var out, said bytes.Buffer
		line := append([]string{"--config", path, "job", "enqueue", "report", "--at", "2099-06-01T00:00:00Z"}, flags...)
		code := run(t.Context(), line, &out, &said)
		got := strings.Join(strings.Fields(out.String()), " ")
		if code != exitOK {
			got = strings.TrimPrefix(strings.TrimSpace(said.String()), "forge: ")
		}
		if got != want {
			t.Errorf("%v: got %q, want %q", flags, got, want)
		}
	}
	enqueue("enqueued job 1; see forge job show 1", "--args", `{"a":1}`)
	enqueue("not enqueued: job 1 is the same and waits (scheduled); see forge job show 1", "--args", `{"a":1}`)
	enqueue(`{ "id": 1, "kind": "report", "existing": true, "verdict": "duplicate", "state": "scheduled", "queue": "default", "scheduled_at": "2099-06-01T00:00:00Z" }`, "--args", `{"a":1}`, "-o", "json")
	enqueue("enqueued job 4; see forge job show 4", "--args", `{"a":2}`)
	enqueue("enqueued job 5; see forge job show 5", "--args", `{"a":2}`, "--no-unique")
	enqueue("enqueued job 6; see forge job show 6", "--unique-queue")
	enqueue("not enqueued: job 6 is the same and waits (scheduled); see forge job show 6", "--unique-queue", "--args", `{"a":3}`)
	enqueue("enqueued job 8; see forge job show 8", "--unique-args=b", "--replace", "--args", `{"a":1,"b":1}`)
	enqueue("replaced the arguments of job 8, which waits (scheduled); see forge job show 8", "--unique-args=b", "--replace", "--args", `{"a":2,"b":1}`)
	enqueue("enqueued job 10; see forge job show 10", "--unique", "t", "--throttle", "366d")
	enqueue("no live node has a worker for kind \"report\"; the job waits until one has\nforge: --at: a time for a debounced job; want none: debounce determines when the job is due", "--unique", "d", "--debounce", "5s")
	enqueue(`--unique-args ",": want names of arguments, such as --unique-args=document,version`, "--unique-args=,")
	enqueue(`--debounce: no duration, or out of range (got "0s"); want 1s to 30d`, "--debounce", "0s")
	enqueue(`--throttle: no duration, or out of range (got "367d"); want 1s to 366d`, "--throttle", "367d")
	enqueue("--max-wait: less than debounce (got \"1s\"); want at least 5s", "--debounce", "5s", "--max-wait", "1s")
	enqueue("--max-wait: without debounce (got \"1s\"); want debounce too", "--max-wait", "1s")
	enqueue("--replace: options that exclude each other; want only one of replace, debounce and throttle", "--replace", "--throttle", "1h")
	enqueue("--replace: options that exclude each other; want replace, debounce and throttle only with a key of your own, or by arguments and queue", "--no-unique", "--throttle", "1h")
	enqueue("--unique and --unique-args: want one of them", "--unique", "k", "--unique-args")
	enqueue("--unique-args and --no-unique: want one of them", "--no-unique", "--unique-args")
	enqueue(`--unique-period "1y": want 1s to 366d`, "--unique-period", "1y")
	enqueue(`--unique-states "done": want of available, cancelled, completed, discarded, pending, retryable, running, scheduled`, "--unique-states", "done")
	enqueue("--unique-states without pending, scheduled, which always count: want them too", "--unique-states", "available,running")
}

// TestEnqueueSaysWhatBecameOfDuplicates checks the verdicts whose texts have times.
func TestEnqueueSaysWhatBecameOfDuplicates(t *testing.T) {
	t.Setenv("FORGE_DATABASE_URL", pgtest.URL(t))
	enqueue := func(flags ...string) string {
		t.Helper()
		var out, said bytes.Buffer
		line := append([]string{"job", "enqueue", "report"}, flags...)
		if code := run(t.Context(), line, &out, &said); code != exitOK {
			t.Fatalf("%v: %s", flags, said.String())
		}
		return strings.TrimSpace(out.String())
	}
	for _, test := range []struct{ flag, period, want string }{
		{"--debounce", "5s", `^replaced the arguments of job 1, which is due at \d{4}-.*; see forge job show 1$`},
		{"--throttle", "1h", `^not enqueued: job \d+ was enqueued not long ago; the next is accepted from \d{4}-`},
	} {
		enqueue("--unique", "k", test.flag, test.period)
		if got := enqueue("--unique", "k", test.flag, test.period); !regexp.MustCompile(test.want).MatchString(got) {
			t.Errorf("%s: got %q", test.flag, got)
		}
	}
}

func TestKnownKinds(t *testing.T) {
	t.Parallel()
	known := []string{"backup", "report"}
	if got, want := knownKinds("bakup", known), `want "backup"; known kinds: backup, report`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := knownKinds("zzz", known), "known kinds: backup, report"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestEnqueueChecksTheKind checks that a kind without a worker on any node so far is rejected, and
// that one without a worker on a live node gets a warning.
func TestEnqueueChecksTheKind(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO forge_nodes (node_id, incarnation, state, kinds)
		VALUES ('a', '0000000000000001', 'active', '{backup}'), ('b', '0000000000000002', 'dead', '{backup,report}')`)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string][2]string{
		"backup": {},
		"report": {"", "no live node has a worker for kind \"report\"; the job waits until one has\n"},
		"bakup":  {`no node has a worker for kind "bakup"; want "backup"; known kinds: backup, report`, ""},
	} {
		var said bytes.Buffer
		refused := ""
		if err := (&app{err: &said}).checkKind(t.Context(), pool, kind); err != nil {
			refused = err.Error()
		}
		if refused != want[0] || said.String() != want[1] {
			t.Errorf("%s: refused %q, said %q, want %q", kind, refused, said.String(), want)
		}
	}
}
