package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestUsageErrors checks that a wrong command line gets one line, with what was probably meant, and
// that the command does not run.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`unknown command "nonsense"; see forge --help`:                                                     {"nonsense"},
		`unknown command "jbo" (did you mean job?); see forge --help`:                                      {"jbo", "list"},
		`unknown command "lst" (did you mean list?); see forge job --help`:                                 {"job", "lst"},
		`unknown flag: --sate (did you mean --state?); see forge job list --help`:                          {"job", "list", "--sate", "running"},
		`unknown flag: --zzz; see forge job list --help`:                                                   {"job", "list", "--zzz"},
		`unknown shorthand flag: '1' in -1; see forge job show --help`:                                     {"job", "show", "-1"},
		`flag needs an argument: --state; see forge job list --help`:                                       {"job", "list", "--state"},
		`unknown command "nope" (did you mean node?); see forge --help`:                                    {"help", "nope"},
		`unknown command "lst" (did you mean list?); see forge dead --help`:                                {"help", "dead", "lst"},
		`--role is missing; want --role NAME, such as --role nightly`:                                      {"run", "--", "ls"},
		`--outcome "foo": want begun, done, refused, failed`:                                               {"audit", "--outcome", "foo"},
		`arguments are missing; want ID; see forge job show --help`:                                        {"job", "show"},
		`wrong number of arguments (got ["1" "2"]); want ID; see forge job show --help`:                    {"job", "show", "1", "2"},
		`wrong number of arguments (got ["nightly"]); want NAME TICK; see forge cron why --help`:           {"cron", "why", "nightly"},
		`the command takes no arguments (got ["extra"]); see forge serve --help`:                           {"serve", "extra"},
		`job id "zero": want a positive number`:                                                            {"job", "show", "zero"},
		`which jobs? Name ids, or a filter: --state, --kind, --queue, --cron, --filter`:                    {"job", "cancel"},
		`jobs are named by ids or by a filter, not by both; --dry-run and --yes go with a filter`:          {"job", "cancel", "1", "--kind", "a"},
		`--node-id: empty; want a value, or leave it out`:                                                  {"serve", "--node-id", ""},
		`--listen: empty; want a value, or leave it out`:                                                   {"serve", "--listen="},
		`--kind: empty; want a value, or leave it out`:                                                     {"job", "cancel", "--kind", "", "--state", "available", "--yes"},
		`--error: empty; want a value, or leave it out`:                                                    {"dead", "discard", "--older-than", "2d", "--error", "", "--yes"},
		`--filter: empty; want a value, or leave it out`:                                                   {"job", "retry", "--state", "discarded", "--filter", "", "--yes"},
		`--key: empty; want a value, or leave it out`:                                                      {"queue", "pause", "mail", "--key", ""},
		`--unique: empty; want a value, or leave it out`:                                                   {"job", "enqueue", "report", "--unique", ""},
		`--file: empty; want a value, or leave it out`:                                                     {"sidecar", "--role", "nightly", "--file", ""},
		`--log-level "loud": want debug, info, warn or error`:                                              {"dev", "--log-level", "loud", "--nodes", "0"},
		`--log-format "xml": want text or json`:                                                            {"dev", "--log-format", "xml", "--nodes", "0"},
		`--config: empty; want a value, or leave it out`:                                                   {"status", "--config", ""},
		`--interval "100ms": want a duration from 500ms to 1h, such as 5s`:                                 {"leader", "status", "--watch", "--interval", "100ms"},
		`--interval "2h": want a duration from 500ms to 1h, such as 5s`:                                    {"job", "list", "-w", "--interval", "2h"},
		`--interval "soon": want a duration from 500ms to 1h, such as 5s`:                                  {"node", "list", "-w", "--interval", "soon"},
		`--interval goes with --watch`:                                                                     {"node", "list", "--interval", "5s"},
		`--to ends the list, and --follow does not end: give one of them`:                                  {"events", "--follow", "--to", "2026-01-01T00:00:00Z"},
		`--to must be after --from`:                                                                        {"events", "--from", "2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z"},
		`--key: no value in "acme"; want KEY=VALUE such as args.tenant=acme`:                               {"queue", "pause", "mail", "--key", "acme"},
		`--for "soon": not a duration; want a time such as 90m, 2h or 3d`:                                  {"queue", "pause", "mail", "--for", "soon"},
		`--by: found "size", want one of cron, kind, node, queue`:                                          {"metrics", "--by", "size"},
		`--since: found "ever", want a duration such as 24h`:                                               {"metrics", "--by", "cron", "--since", "ever"},
		`"last" is no term; want a number from forge leader history`:                                       {"leader", "incident", "scheduler", "last"},
		`--watch and --follow: want one of them`:                                                           {"events", "--watch", "--follow"},
		`output "yaml" does not stream; want table, wide or json`:                                          {"queue", "list", "--watch", "-o", "yaml"},
		`unknown output "xml"; want table, wide, json or yaml`:                                             {"job", "list", "-o", "xml"},
		`invalid argument "x" for "--timeout" flag: time: invalid duration "x"; see forge job wait --help`: {"job", "wait", "1", "--timeout", "x"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, &out, &errs); code != exitUsage || errs.String() != "forge: "+want+"\n" || out.Len() > 0 {
			t.Errorf("forge %q: exit %d\ngot  %swant forge: %s\n%s", args, code, errs.String(), want, out.String())
		}
	}
}

func TestKnownZone(t *testing.T) {
	t.Parallel()
	for zone, want := range map[string]bool{
		"": true, "UTC": true, ":Europe/Berlin": true, "/dev/null": true, "Mars/Base": false, "/no/such/zone": false, "CET-1CEST,M3.5.0,M10.5.0": false,
	} {
		if got := knownZone(zone); got != want {
			t.Errorf("knownZone(%q) = %t", zone, got)
		}
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Runnable() && !cmd.HasSubCommands() && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	for _, cmd := range new(app).rootCommand().Commands() {
		if cmd.Name() != "help" { // Cobra's own
			check(cmd)
		}
	}
}

// TestFlagIsNamedInPlaceOfItsVariable checks that the error for a bad value names the flag that gave
// it, not the environment variable that the flag overrides.
func TestFlagIsNamedInPlaceOfItsVariable(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"serve", "--config", fileWith(t, ""), "--listen", "foo"}, &out, &errs)
	const want = "forge: command line: --listen: not an address to listen on (got \"foo\"); want HOST:PORT such as \"127.0.0.1:8080\"\n"
	if code != exitConfig || errs.String() != want {
		t.Errorf("exit %d\ngot  %swant %s", code, errs.String(), want)
	}
}

// TestTicksCanBeTyped checks that commands take an instant as tables print it.
func TestTicksCanBeTyped(t *testing.T) {
	t.Parallel()
	tick := time.Date(2026, 10, 25, 1, 30, 0, 500_000_000, time.UTC)
	for _, printed := range []string{
		tickStamp(tick), stamp(tick), tick.Format(time.RFC3339Nano), "2026-10-25T03:30:00.5+02:00", "2026-10-25 01:30:00.500 UTC",
		"Sun 2026-10-25 03:30:00.5 +02:00",
	} {
		if got, err := parseInstant("TICK", printed); err != nil || !got.Equal(tick) {
			t.Errorf("%s is read as %v, %v", printed, got, err)
		}
	}
	for _, wrong := range []string{"2026-10-25 01:30:00 XYZ", "2026-10-25 01:30:00", "2026-10-25", "now", ""} {
		if got, err := parseInstant("TICK", wrong); err == nil {
			t.Errorf("%q is read as %v", wrong, got)
		}
	}
}
