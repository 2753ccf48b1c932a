package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A job of each kind with one key more, on line 4.
func shellWith(key string) string {
	return "[jobs.xy]\nkind = \"shell\"\ncommand = [\"true\"]\n" + key + "\n"
}

func httpWith(key string) string {
	return "[jobs.xy]\nkind = \"http\"\nurl = \"https://example.com\"\n" + key + "\n"
}

func sqlWith(key string) string {
	return "[jobs.xy]\nkind = \"sql\"\nstatement = \"SELECT 1\"\n" + key + "\n"
}

// Jobs with a value on line 3.
func commanding(command string) string {
	return "[jobs.xy]\nkind = \"shell\"\ncommand = " + command + "\n"
}

func requesting(url string) string {
	return "[jobs.xy]\nkind = \"http\"\nurl = \"" + url + "\"\n"
}

func stating(statement string) string {
	return "[jobs.xy]\nkind = \"sql\"\nstatement = \"" + statement + "\"\n"
}

const (
	atCommand   = "forge.toml:3:11: jobs.xy.command: "
	atURL       = "forge.toml:3:7: jobs.xy.url: "
	atStatement = "forge.toml:3:13: jobs.xy.statement: "

	wantStatement = `a statement such as "DELETE FROM sessions WHERE expires_at < now()"`
	wantPublic    = "allow_private_targets = true or allow_cidrs in [http], or a public address"
)

// jobCatalogue is all that can be wrong with a job in the file, numbered so that
// none is forgotten. The args of jobs that are enqueued (70 to 72) are tested with
// CheckArgs, a kind that no live node works (69) in cmd/forge and scheduler/assign,
// and what shows while a job runs (73, 75, 77 to 83) in package jobs.
var jobCatalogue = []bad{
	{"67 unknown kind", "[jobs.xy]\nkind = \"htpp\"\nurl = \"https://example.com\"\n", []string{`forge.toml:2:8: jobs.xy.kind: not a known value (got "htpp"); want "http"`}},
	{"67 another kind", "[jobs.xy]\nkind = \"python\"\n", []string{`forge.toml:2:8: jobs.xy.kind: not a known value (got "python"); want "shell", "http", "sql" or "go"`}},
	{"67 no kind", "[jobs.xy]\nqueue = \"default\"\n", []string{`forge.toml:1:2: jobs.xy: no kind; want kind = "shell", "http", "sql" or "go"`}},
	{"67 keys of a Go program's worker", "[jobs.xy]\nkind = \"go\"\ntimeout = \"5m\"\ncommand = [\"true\"]\nretry = { max_attempts = 5, backoff = \"1s\" }\noutput = { capture = 9 }\n", []string{
		"forge.toml:3:1: jobs.xy.timeout: the worker in the Go program decides that; want its Timeout, NextRetry or output there",
		"forge.toml:4:1: jobs.xy.command: a key of shell jobs in a job of kind go; want only keys of its own kind",
		"forge.toml:5:29: jobs.xy.retry.backoff: the worker in the Go program decides that; want its Timeout, NextRetry or output there",
		"forge.toml:6:1: jobs.xy.output: the worker in the Go program decides that; want its Timeout, NextRetry or output there",
	}},
	{"68 a Go program's worker", inCron(daily+"job = \"greet\"") + "[jobs.greet]\nkind = \"go\"\nqueue = \"mail\"\nretry.max_attempts = 5\n", nil},
	{"68 unknown job", inCron(daily+"job = \"bakup\"") + "[jobs.backup]\nkind = \"shell\"\ncommand = [\"true\"]\n", []string{`forge.toml:4:7: crons[0].job: unknown job (got "bakup"); want "backup"`}},
	{"71 args of 64 KiB and a byte", inCron(daily + "command = [\"true\"]\nargs = { a = \"" + strings.Repeat("x", 64<<10-7) + "\" }"), []string{
		"forge.toml:5:8: crons[0].args: args too large (got 65537 bytes as JSON); want at most 64 KiB",
	}},
	{"71 args of 64 KiB", inCron(daily + "command = [\"true\"]\nargs = { a = \"" + strings.Repeat("x", 64<<10-8) + "\" }"), nil},
	{"71 deep args", inCron(daily + "command = [\"true\"]\nargs = { a = " + strings.Repeat("[", 65) + strings.Repeat("]", 65) + " }"), []string{
		"forge.toml:5:44: nesting too deep; want at most 32 levels",
	}},
	{"71 NUL in args", inCron(daily + "command = [\"true\"]\nargs = { a = [\"\\u0000\"] }"), []string{
		"forge.toml:5:15: crons[0].args.a[0]: a NUL character, which PostgreSQL's jsonb refuses; want text without it",
	}},
	{"71 NUL in a name of args", inCron(daily + "command = [\"true\"]\nargs = { \"a\\u0000\" = 1 }"), []string{
		`forge.toml:5:10: crons[0].args."a\x00": a NUL character in a name, which PostgreSQL's jsonb refuses; want a name without it`,
	}},
	{"72 invalid UTF-8 in args", inCron(daily + "command = [\"true\"]\nargs = { a = \"\xff\" }"), []string{"forge.toml:5:15: invalid UTF-8 (got byte 0xff); want UTF-8"}},
	{"74 command line", commanding(`"rm -rf $TMP/*"`), []string{atCommand + `wrong type (got "rm -rf $TMP/*"); want a list of its words, command = ["sh", "-c", "rm -rf $TMP/*"]`}},
	{"75 relative path", commanding(`["bin/backup"]`), []string{
		`forge.toml:3:12: jobs.xy.command[0]: relative path (got "bin/backup"); want an absolute path, or a bare name that is found on PATH`,
	}},
	{"75 no program", commanding(`[""]`), []string{atCommand + `no program (got ""); want the program's name or absolute path first`}},
	{"75 NUL in an argument", commanding(`["true", "a\u0000"]`), []string{"forge.toml:3:20: jobs.xy.command[1]: a NUL character; want text without it"}},
	{"76 name with =", shellWith(`env = { "A=B" = "1" }`), []string{`forge.toml:4:9: jobs.xy.env."A=B": not a variable's name; want a name without = and NUL`}},
	{"76 name with NUL", shellWith(`env = { "A\u0000" = "1" }`), []string{`forge.toml:4:9: jobs.xy.env."A\x00": a NUL character in a name; want a name without it`}},
	{"76 NUL in a key or value that is stored", shellWith(`cwd = "/a\u0000"`) + "tags = { \"a\\u0000\" = \"b\", c = \"\\u0000\" }\nunique = { by_args = [\"a\\u0000\"] }\n" +
		"[jobs.yz]\nkind = \"http\"\nurl = \"https://example.com/\"\nbody = \"\\u0000\"\n", []string{
		"forge.toml:4:7: jobs.xy.cwd: a NUL character; want text without it",
		`forge.toml:5:10: jobs.xy.tags."a\x00": a NUL character in a name; want a name without it`,
		"forge.toml:5:31: jobs.xy.tags.c: a NUL character; want text without it",
		`forge.toml:6:23: jobs.xy.unique.by_args[0]: not the name of an argument, or twice (got "a\x00"); want true, or a list of their names such as ["document"]`,
		"forge.toml:10:8: jobs.yz.body: a NUL character; want text without it",
	}},
	{"76 value with NUL", shellWith(`env = { A = "\u0000" }`), []string{"forge.toml:4:13: jobs.xy.env.A: a NUL character; want text without it"}},
	{"76 LD_PRELOAD", shellWith(`env = { LD_PRELOAD = "/tmp/x.so" }`), []string{
		"forge.toml:4:9: jobs.xy.env.LD_PRELOAD: a variable that changes which code the program loads; want no LD_* or DYLD_*",
	}},
	{"78 relative cwd", shellWith(`cwd = "tmp"`), []string{`forge.toml:4:7: jobs.xy.cwd: relative path (got "tmp"); want an absolute path`}},
	{"79 no output", shellWith("output = { capture = 0 }"), []string{"forge.toml:4:22: jobs.xy.output.capture: out of range (got 0); want 1 to 16777216"}},
	{"79 too much output", shellWith("output = { capture = 16777217 }"), []string{"forge.toml:4:22: jobs.xy.output.capture: out of range (got 16777217); want 1 to 16777216"}},
	{"79 16 MiB of output", shellWith("output = { capture = 16777216 }"), nil},
	{"80 ftp", requesting("ftp://example.com"), []string{atURL + `not an HTTP address (got "ftp://example.com"); want http:// or https://`}},
	{"80 file", requesting("file:///etc/passwd"), []string{atURL + `not an HTTP address (got "file:///etc/passwd"); want http:// or https://`}},
	{"80 gopher", requesting("gopher://example.com"), []string{atURL + `not an HTTP address (got "gopher://example.com"); want http:// or https://`}},
	{"80 no scheme", requesting("example.com/hook"), []string{atURL + `not an HTTP address (got "example.com/hook"); want http:// or https://`}},
	{"80 user", requesting("https://u:hunter2@example.com/"), []string{
		atURL + `a user in the URL (got "https://u:[redacted]@example.com/"); want headers = { Authorization = "${env:NAME}" }`,
	}},
	{"80 no host", requesting("https://:443/x"), []string{atURL + `no host (got "https://:443/x"); want a URL such as "https://example.com/hook"`}},
	{"80 loopback", requesting("http://127.0.0.1:1/"), []string{atURL + `a loopback or private address (got "http://127.0.0.1:1/"); want ` + wantPublic}},
	{"80 private", requesting("http://10.0.0.1/"), []string{atURL + `a loopback or private address (got "http://10.0.0.1/"); want ` + wantPublic}},
	{"80 link-local", requesting("http://169.254.169.254/"), []string{atURL + `a loopback or private address (got "http://169.254.169.254/"); want ` + wantPublic}},
	{"80 carrier-grade NAT", requesting("http://100.64.0.1/"), []string{atURL + `a loopback or private address (got "http://100.64.0.1/"); want ` + wantPublic}},
	{"80 opened", "[http]\nallow_cidrs = [\"10.0.0.0/24\", \"::1/128\", \"169.254.169.254/32\"]\n" + requesting("http://10.0.0.1/") +
		"[jobs.own]\nkind = \"http\"\nurl = \"http://localhost:1/\"\n[jobs.meta]\nkind = \"http\"\nurl = \"http://169.254.169.254/\"\n", nil},
	{"80 another opened", requesting("http://10.0.1.1/") + "[http]\nallow_cidrs = [\"10.0.0.0/24\"]\n", []string{atURL + `a loopback or private address (got "http://10.0.1.1/"); want ` + wantPublic}},
	{"80 no range", "[http]\nallow_cidrs = [\"10.0.0.1\", \"10.0.0.1/8\"]\n", []string{
		`forge.toml:2:16: http.allow_cidrs[0]: not a range of addresses (got "10.0.0.1"); want a CIDR such as "10.1.0.0/16"`,
		`forge.toml:2:28: http.allow_cidrs[1]: an address within a range (got "10.0.0.1/8"); want "10.0.0.0/8"`,
	}},
	{"81 method with a space", httpWith(`method = "GET /"`), []string{`forge.toml:4:10: jobs.xy.method: not an HTTP method (got "GET /"); want an HTTP method such as POST`}},
	{"81 method in lower case", httpWith(`method = "post"`), []string{`forge.toml:4:10: jobs.xy.method: not an HTTP method (got "post"); want "POST"`}},
	{"81 header with CRLF", httpWith(`headers = { X-A = "a\r\nX-B: b" }`), []string{"forge.toml:4:19: jobs.xy.headers.X-A: a line end or NUL in a header; want text on one line"}},
	{"81 header with a control character", httpWith(`headers = { X-A = "a\u0001" }`), []string{
		"forge.toml:4:19: jobs.xy.headers.X-A: a line end or NUL in a header; want text on one line",
	}},
	{"81 name with CRLF", httpWith(`headers = { "A\r\nB" = "a" }`), []string{`forge.toml:4:13: jobs.xy.headers."A\r\nB": not a header's name; want letters, digits and -`}},
	{"81 Host", httpWith(`headers = { Host = "internal" }`), []string{"forge.toml:4:13: jobs.xy.headers.Host: the host cannot be overridden; want it in the url"}},
	{"83 status", httpWith("expect_status = [600]"), []string{"forge.toml:4:18: jobs.xy.expect_status[0]: out of range (got 600); want 100 to 599"}},
	{"84 empty", stating(" -- nothing"), []string{atStatement + "no statement; want " + wantStatement}},
	{"84 several", stating("DELETE FROM a; DELETE FROM b"), []string{atStatement + "2 statements; want one statement; several belong in a function, or in jobs of their own"}},
	{"84 half a statement", stating("SELECT 'a"), []string{atStatement + "a quote or comment that does not end; want a whole statement"}},
	{"84 COPY PROGRAM", stating("COPY t /* */ FROM PROGRAM 'id'"), []string{atStatement + "COPY ... PROGRAM runs a command on the database's host; want a shell job"}},
	{"84 COPY TO PROGRAM", stating("copy (select 'a')to program'id'"), []string{atStatement + "COPY ... PROGRAM runs a command on the database's host; want a shell job"}},
	{"84 COPY of a file of a program", stating("COPY t FROM '/srv/program/t.csv'"), nil},
	{"84 COPY FROM STDIN", stating("COPY t (a) FROM stdin"), []string{atStatement + "COPY with a client's own input or output, and a job has none; want INSERT or SELECT"}},
	{"84 COPY TO STDOUT", stating("copy (SELECT 1) to STDOUT"), []string{atStatement + "COPY with a client's own input or output, and a job has none; want INSERT or SELECT"}},
	{"84 COPY of texts", stating("COPY (SELECT 'to stdout', E'it\\\\'s to stdout', $x$from program$x$, a$b AS \\\"from stdin\\\" FROM t) TO '/srv/to stdout'"), nil},
	{"84 COPY TO STDOUT of texts", stating("COPY (SELECT 'x') TO STDOUT"), []string{atStatement + "COPY with a client's own input or output, and a job has none; want INSERT or SELECT"}},
	{"84 transaction control", stating("Begin"), []string{atStatement + "BEGIN in a job, which is one statement outside any transaction; want the statement alone"}},
	{"84 unknown database", sqlWith(`database = "reporting"`), []string{
		`forge.toml:4:12: jobs.xy.database: not an address of PostgreSQL (got "reporting"); want postgres://USER@HOST:5432/DATABASE`,
	}},
	{"84 timeout of nothing", sqlWith(`statement_timeout = "0s"`), []string{`forge.toml:4:21: jobs.xy.statement_timeout: zero duration (got "0s"); want 1ms to 30d`}},
	{"84 unknown parameter", stating("SELECT @tik::timestamptz"), []string{atStatement + `an unknown parameter (got "@tik"); want @tick, or a blank after the operator @`}},
	{"84 another parameter", stating("SELECT @customer_number"), []string{
		atStatement + `an unknown parameter (got "@customer_number"); want @args, @attempt, @cron, @job, @job_id, @node, @term, @tick, or a blank after the operator @`,
	}},
	{"84 no parameters", stating("SELECT '@a', $$@b$$, a <@ b, @ -5 /* @c */, @job_id"), nil},
}

// uniqueCatalogue is what can be wrong with what is unique.
var uniqueCatalogue = []bad{
	{"all of it", shellWith(`unique = { by_args = true, by_period = "1h", by_queue = true, by_state = ["available", "pending", "running", "scheduled"] }`), nil},
	{"nothing", shellWith("unique = { by_args = false }"), nil},
	{"unknown state", shellWith(`unique = { by_state = ["ruunning"] }`), []string{
		`forge.toml:4:24: jobs.xy.unique.by_state[0]: not a known value (got "ruunning"); want "running"`,
	}},
	{"states that are missing", shellWith(`unique = { by_state = ["available", "running"] }`), []string{
		`forge.toml:4:23: jobs.xy.unique.by_state: without states that always count (got available, running); want "pending", "scheduled" too`,
	}},
	{"replace", shellWith(`unique = { by_args = ["doc", "v"], by_queue = true, replace = true }`), nil},
	{"debounce", shellWith(`unique = { replace = false, debounce = "5s", max_wait = "5s" }`), nil},
	{"throttle", shellWith(`unique = { by_args = true, throttle = "366d" }`), nil},
	{"no argument", shellWith(`unique = { by_args = [] }`), []string{
		`forge.toml:4:22: jobs.xy.unique.by_args: an empty list; want true, or a list of their names such as ["document"]`,
	}},
	{"one argument", shellWith(`unique = { by_args = "doc" }`), []string{
		`forge.toml:4:22: jobs.xy.unique.by_args: wrong type (got "doc"); want true, or a list of their names such as ["document"]`,
	}},
	{"an argument twice", shellWith(`unique = { by_args = ["doc", "doc"] }`), []string{
		`forge.toml:4:30: jobs.xy.unique.by_args[1]: not the name of an argument, or twice (got "doc"); want true, or a list of their names such as ["document"]`,
	}},
	{"no period", shellWith(`unique = { debounce = "0s" }`), []string{`forge.toml:4:23: jobs.xy.unique.debounce: zero duration (got "0s"); want 1s to 30d`}},
	{"a huge period", shellWith(`unique = { throttle = "367d" }`), []string{`forge.toml:4:23: jobs.xy.unique.throttle: out of range (got "367d"); want 1s to 366d`}},
	{"two modes", shellWith(`unique = { replace = true, throttle = "5s" }`), []string{
		`forge.toml:4:28: jobs.xy.unique.throttle: replace and throttle; want one of replace, debounce and throttle`,
	}},
	{"a mode by period", shellWith(`unique = { by_period = "1h", debounce = "5s" }`), []string{
		`forge.toml:4:12: jobs.xy.unique.by_period: by_period with debounce; want only by_args and by_queue beside debounce`,
	}},
	{"a wait alone", shellWith(`unique = { max_wait = "5s" }`), []string{`forge.toml:4:12: jobs.xy.unique.max_wait: without debounce; want debounce too`}},
	{"a short wait", shellWith(`unique = { debounce = "1m", max_wait = "5s" }`), []string{
		`forge.toml:4:40: jobs.xy.unique.max_wait: less than debounce (got "5s"); want at least 1m`,
	}},
	{"an unknown mode", shellWith(`unique = { debounse = "5s" }`), []string{`forge.toml:4:12: jobs.xy.unique.debounse: unknown key; want "debounce"`}},
	{"a short period", shellWith(`unique = { by_period = "10ms" }`), []string{`forge.toml:4:24: jobs.xy.unique.by_period: out of range (got "10ms"); want 1s to 366d`}},
}

// exitCodesCatalogue is what can be wrong with exit codes.
var exitCodesCatalogue = []bad{
	{"all of them", shellWith(`exit_codes = { snooze = 75, cancel = 76, discard = 77 }`), nil},
	{"a shell's", shellWith(`exit_codes = { snooze = 127 }`), []string{`forge.toml:4:25: jobs.xy.exit_codes.snooze: out of range (got 127); want 3 to 125`}},
	{"failure", shellWith(`exit_codes = { cancel = 1 }`), []string{`forge.toml:4:25: jobs.xy.exit_codes.cancel: out of range (got 1); want 3 to 125`}},
	{"twice", shellWith(`exit_codes = { snooze = 75, discard = 75 }`), []string{`forge.toml:4:25: jobs.xy.exit_codes.snooze: a code with two meanings (got 75); want another code`}},
	{"of a request", httpWith(`exit_codes = { snooze = 75 }`), []string{`forge.toml:4:1: jobs.xy.exit_codes: a key of shell jobs in a job of kind http; want only keys of its own kind`}},
}

// runCatalogue is what can be wrong with ${run:NAME}.
var runCatalogue = []bad{
	{"all of them", httpWith(`body = "${run:job_id} ${run:job} ${run:attempt} ${run:term} ${run:node} ${run:tick-1d:%F} ${run:tick+1h30m}"`), nil},
	{"in each place", "[jobs.xy]\nkind = \"shell\"\ncommand = [\"true\", \"--day=${run:tick:%Y%m%d}\"]\nenv = { DAY = \"${run:tick:%j}\" }\n" +
		"[jobs.yz]\nkind = \"http\"\nurl = \"https://example.com/${run:tick:%F}?n=${run:attempt}\"\nheaders = { X-N = \"${run:attempt}\" }\n", nil},
	{"unknown", commanding(`["true", "${run:tik}"]`), []string{`forge.toml:3:20: jobs.xy.command[1]: a run has no such value (got "${run:tik}"); want "tick"`}},
	{"what a row says freely", commanding(`["sh", "-c", "echo ${run:args}"]`), []string{
		`forge.toml:3:24: jobs.xy.command[2]: a run has no such value (got "${run:args}"); want one of attempt, job, job_id, node, term, tick`,
	}},
	{"not closed", shellWith(`env = { A = "${run:tick" }`), []string{`forge.toml:4:13: jobs.xy.env.A: without its closing brace (got "${run:tick"); want ${run:tick}`}},
	{"a format of a number", httpWith(`headers = { X-A = "${run:attempt:%d}" }`), []string{
		`forge.toml:4:19: jobs.xy.headers.X-A: only a tick can be moved or formatted (got "${run:attempt:%d}"); want ${run:attempt}`,
	}},
	{"a move of nothing", httpWith(`body = "${run:tick-1}"`), []string{
		`forge.toml:4:8: jobs.xy.body: the tick is moved by duration without a unit (got "${run:tick-1}"); want ${run:tick-1d}`,
	}},
	{"a letter", requesting("https://example.com/${run:tick:%Q}"), []string{
		atURL + `an unknown letter %Q in the format (got "${run:tick:%Q}"); want ${run:tick:%Y-%m-%d}, of %% %F %H %M %S %T %Y %d %j %m %s %y`,
	}},
	{"no letter", requesting("https://example.com/${run:tick:%}"), []string{
		atURL + `a format that ends in % (got "${run:tick:%}"); want ${run:tick:%Y-%m-%d}, of %% %F %H %M %S %T %Y %d %j %m %s %y`,
	}},
	{"the host", requesting("https://${run:node}.example.com/"), []string{atURL + `the host cannot depend on the run (got "${run:node}"); want its values after the host`}},
	{"the program", commanding(`["/opt/${run:job}"]`), []string{
		`forge.toml:3:12: jobs.xy.command[0]: the program cannot depend on the run (got "${run:job}"); want its values among the arguments`,
	}},
	{"a statement", stating("SELECT '${run:tick}'"), []string{atStatement + `a statement has bind parameters (got "${run:tick}"); want @tick`}},
}

func TestJobCatalogue(t *testing.T) {
	t.Parallel()
	for section, cases := range map[string][]bad{"jobs": jobCatalogue, "run": runCatalogue, "unique": uniqueCatalogue, "limits": limitCatalogue, "exit codes": exitCodesCatalogue} {
		for _, c := range cases {
			t.Run(section+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				_, report, err := parseWith(c.text)
				if diff := cmp.Diff(c.want, messages(report)); diff != "" {
					t.Errorf("report (-want +got):\n%s", diff)
				}
				if refused := len(report.Errors()) > 0; refused != (err != nil) {
					t.Errorf("error = %v with %d errors in the report", err, len(report.Errors()))
				}
			})
		}
	}
}
