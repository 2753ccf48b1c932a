package main

import (
	"bytes"
	"testing"
)

// What is wrong with a command line is said in one line, with what was probably
// meant, and nothing is done.
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
		`nothing is named; want ID; see forge job show --help`:                                             {"job", "show"},
		`wrong number of arguments (got ["1" "2"]); want ID; see forge job show --help`:                    {"job", "show", "1", "2"},
		`wrong number of arguments (got ["nightly"]); want NAME TICK; see forge cron why --help`:           {"cron", "why", "nightly"},
		`it takes no arguments (got ["extra"]); see forge serve --help`:                                    {"serve", "extra"},
		`job id "zero": want a positive number`:                                                            {"job", "show", "zero"},
		`which jobs? Name ids, or a filter: --state, --kind, --queue, --cron`:                              {"job", "cancel"},
		`jobs are named by ids or by a filter, not by both; --dry-run and --yes go with a filter`:          {"job", "cancel", "1", "--kind", "a"},
		`--node-id: empty; leave it out for the default`:                                                   {"serve", "--node-id", ""},
		`--listen: empty; leave it out for the default`:                                                    {"serve", "--listen="},
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
