package jobstore_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

func TestPattern(t *testing.T) {
	t.Parallel()
	for failure, want := range map[string]string{
		"":                "",
		"exit status 1":   "exit status 1",
		"exit status 137": "exit status 137",
		"mail 17 to /var/spool/x.42 failed (exit status 75)":                         "mail <n> to <path> failed (exit status 75)",
		"status 503 Service Unavailable, want 2xx":                                   "status 503 Service Unavailable, want <n>xx",
		"ERROR: duplicate key (SQLSTATE 23505)":                                      "ERROR: duplicate key (SQLSTATE 23505)",
		"ERROR: no such table (SQLSTATE 42P01)":                                      "ERROR: no such table (SQLSTATE 42P01)",
		"customer 4711 owes 12.50":                                                   "customer <n> owes <n>",
		"order 0b0e7b1c-93a4-4f0a-8e4e-0a3f5a2d9c11 is gone":                         "order <id> is gone",
		"token 01HF3ZQ8W9XK4T2B7M5N6P8R is over":                                     "token <id> is over",
		"commit 9f86d081884c7d65 at 0xdeadBEEF":                                      "commit <hex> at <hex>",
		"defaced facade, effaced":                                                    "defaced facade, effaced",
		"open /var/lib/app/17/data.json: no such file or directory":                  "open <path>: no such file or directory",
		`cannot read "./a/b" and '~/c'`:                                              `cannot read "<path>" and '<path>'`,
		"Get https://api.example.com/v1/customers/17?x=y: EOF":                       "Get https://api.example.com<path> EOF",
		"due 2026-11-20T15:04:05.123Z, was 2026/11/20 15:04:05 +0100, at 15:04:05.1": "due <time>, was <time>, at <time>",
		"gave up after 1m30.5s, 250ms and 3h":                                        "gave up after <span>, <span> and <span>",
		"dial tcp 10.0.0.7:5432: connect: connection refused":                        "dial tcp <n>:<n>: connect: connection refused",
		"  many\n\tlines  ":                                                          "many lines",
		"node lost":                                                                  "node lost",
		"\xff\xfebroken":                                                             "broken",
	} {
		if got := jobstore.Pattern(failure); got != want {
			t.Errorf("Pattern(%q) = %q, want %q", failure, got, want)
		}
	}
	long := strings.Repeat("é", 5000)
	if got := jobstore.Pattern(long); len(got) > 2048 || !strings.HasPrefix(long, got) {
		t.Errorf("a long error's pattern has %d bytes", len(got))
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	one := jobstore.Fingerprint("import", "row 7 of /tmp/a.csv is broken")
	// Fingerprints are stored: other releases must compute the same.
	if want := "dd28cfe5c16"; one != want {
		t.Errorf("Fingerprint() = %q, want %q", one, want)
	}
	if !regexp.MustCompile(`^d[0-9a-f]{10}$`).MatchString(one) {
		t.Errorf("Fingerprint() = %q", one)
	}
	if same := jobstore.Fingerprint("import", "row 8123 of /tmp/b.csv is broken"); same != one {
		t.Error("the same error of another row is told apart")
	}
	for _, other := range []string{
		jobstore.Fingerprint("export", "row 7 of /tmp/a.csv is broken"),
		jobstore.Fingerprint("import", "row 7 of /tmp/a.csv is missing"),
	} {
		if other == one {
			t.Error("another kind or error has the same fingerprint")
		}
	}
}
