package main

import "testing"

func TestArgumentsOfCommands(t *testing.T) {
	t.Parallel()
	const flags = "\n\nFlags:\n      --from string      the start\n      --to string   the end\n  -n, --limit int        how many\n" +
		"  -w, --watch duration[=2s]   again and again\n      --dry-run          change nothing\n"
	for _, c := range []struct {
		usage string
		args  []string
		want  string
	}{
		{"forge cron why NAME TICK [flags]", []string{"cron", "why", "a", "b"}, ""},
		{"forge cron why NAME TICK [flags]", []string{"cron", "why", "a"}, "1 arguments, want those of: forge cron why NAME TICK [flags]"},
		{"forge cron why NAME TICK [flags]", []string{"cron", "why", "a", "b", "c"}, "3 arguments, want those of: forge cron why NAME TICK [flags]"},
		{"forge cron backfill NAME [flags]", []string{"cron", "backfill", "--from", "x", "a", "-n", "3", "--dry-run"}, ""},
		{"forge cron list [flags]", []string{"cron", "list", "-w", "--from=x"}, ""},
		{"forge cron list [flags]", []string{"cron", "list", "-w", "5s"}, "1 arguments, want those of: forge cron list [flags]"},
		{"forge alerts history [NAME] [flags]", []string{"alerts", "history"}, ""},
		{"forge alerts history [NAME] [flags]", []string{"alerts", "history", "a", "b"}, "2 arguments, want those of: forge alerts history [NAME] [flags]"},
		{"forge config diff [[FROM] HASH] [flags]", []string{"config", "diff", "a", "b"}, ""},
		{"forge config diff [[FROM] HASH] [flags]", []string{"config", "diff", "a", "b", "c"}, "3 arguments, want those of: forge config diff [[FROM] HASH] [flags]"},
		{"forge job cancel ID... [flags]", []string{"job", "cancel", "1", "2", "3"}, ""},
		{"forge job cancel ID... [flags]", []string{"job", "cancel"}, ""},
		{"forge leader transfer ROLE --to NODE [flags]", []string{"leader", "transfer", "scheduler", "--to", "a"}, ""},
		{"forge run --role NAME [flags] [-- CMD [ARG...]]", []string{"run", "--", "sleep", "1"}, ""},
		{"forge drill [leader] ROLE [flags]", []string{"drill", "leader", "scheduler"}, ""},
		{"forge drill [leader] ROLE [flags]", []string{"drill"}, "0 arguments, want those of: forge drill [leader] ROLE [flags]"},
		{"forge import crontab [FILE] [flags]", []string{"import", "crontab", "-"}, ""},
	} {
		if got := checkArguments("About.\n\nUsage:\n  "+c.usage+flags, c.args); got != c.want {
			t.Errorf("%q: got %q, want %q", c.args, got, c.want)
		}
	}
}
