package config

import (
	"strings"
	"testing"
	"time"
)

func sections(t *testing.T, text string, environ ...string) (canonical, hash string) {
	t.Helper()
	raw, hash, err := mustParse(t, text, environ...).ClusterSections()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw), hash
}

// TestClusterSectionsHashTheMeaning compares texts that mean the same, and that
// do not.
func TestClusterSectionsHashTheMeaning(t *testing.T) {
	t.Parallel()
	base, hash := sections(t, full, "TOKEN=one")
	if len(hash) != 64 {
		t.Errorf("hash = %q", hash)
	}
	for _, want := range []string{`"Bearer ${env:TOKEN}"`, `"timeout":"10m"`, `"name":"ping"`, `"overlap":"skip"`, `"job":"ping"`} {
		if !strings.Contains(base, want) {
			t.Errorf("the sections lack %s: %s", want, base)
		}
	}
	crons := strings.Index(full, "[[crons]]")
	second := strings.LastIndex(full, "[[crons]]")
	// A node's own secret may be a word of the file: it must not matter.
	text := strings.Replace(full, "team = \"x\"", "team = \"private\"", 1)
	_, one := sections(t, text, "TOKEN=one")
	if canonical, other := sections(t, text, "TOKEN=private"); other != one {
		t.Errorf("the value of a secret changes the hash: %s", canonical)
	}
	same := map[string]string{
		"a comment":             "# hello\n" + full,
		"crons in other order":  full[:crons] + full[second:] + full[crons:second],
		"a default written out": full + "overlap = \"skip\"\n",
		"another node":          strings.Replace(full, `id = "n1"`, "id = \"n2\"\nslots = 3", 1),
	}
	for name, text := range same {
		if canonical, other := sections(t, text, "TOKEN=private"); other != hash {
			t.Errorf("%s changes the hash:\n%s\n%s", name, base, canonical)
		}
	}
	for name, change := range map[string][2]string{
		"schedule": {"0 3 * * *", "0 4 * * *"}, "reference": {"Bearer ${env:TOKEN}", "Basic ${env:TOKEN}"},
		"args": {"days = 7", "days = 8"}, "queue": {"max_workers = 3", "max_workers = 4"},
	} {
		if _, other := sections(t, strings.Replace(full, change[0], change[1], 1), "TOKEN=one"); other == hash {
			t.Errorf("%s does not change the hash", name)
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"750ms": 750 * time.Millisecond, "1h30m": 90 * time.Minute, "90d": 90 * day, "2w": 2 * week,
		"1.5h": 90 * time.Minute, "1d12h": 36 * time.Hour, "10us": 10 * time.Microsecond, "0": 0,
	} {
		if got, err := ParseDuration(text); err != nil || got.Std() != want {
			t.Errorf("ParseDuration(%s) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "5 s", "s", "-5s", "+5s", "5x", "1..5s", "9999999999h", "99999999999999999999s", "1e3s", "106751d24h48m", "Inf", "1h "} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%s) = %v, want an error", text, got)
		}
	}
	for d, want := range map[time.Duration]string{
		90 * day: "90d", day: "24h", time.Hour: "1h", 90 * time.Second: "1m30s", time.Minute: "1m",
		750 * time.Millisecond: "750ms", 0: "0s", 2*day + time.Hour: "49h", time.Hour + time.Second: "1h0m1s", 10 * time.Second: "10s",
	} {
		if got := Duration(d).String(); got != want {
			t.Errorf("%d as text = %s, want %s", d, got, want)
		}
		if back, err := ParseDuration(want); err != nil || back.Std() != d {
			t.Errorf("ParseDuration(%s) = %v, %v", want, back, err)
		}
	}
}

func TestStatements(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"SELECT 1":              1,
		"SELECT 1;":             1,
		"SELECT 1; ; -- done\n": 1,
		"SELECT ';' ; SELECT 2": 2,
		`SELECT ";" FROM t`:     1,
		"SELECT 'it''s;' ":      1,
		`SELECT E'\';' `:        1,
		"DO $$ BEGIN PERFORM 1; PERFORM 2; END $$": 1,
		"DO $a$ $$ ; $b$ ; $a$; SELECT 1":          2,
		"SELECT /* ; /* ; */ ; */ 1":               1,
		"SELECT $1, a$b$c; SELECT 2":               2,
		"-- only a comment":                        0,
		"":                                         0,
	} {
		if got, closed := splitSQL(text); len(got) != want || !closed {
			t.Errorf("splitSQL(%s) = %q, %v, want %d", text, got, closed, want)
		}
	}
	for _, text := range []string{"SELECT '", `SELECT "a`, "SELECT $$ a", "SELECT /* /* */", `SELECT E'\'`} {
		if _, closed := splitSQL(text); closed {
			t.Errorf("splitSQL(%s) is closed", text)
		}
	}
}

// FuzzStatements holds that any text is split without a panic or an endless loop.
func FuzzStatements(f *testing.F) {
	for _, text := range []string{"SELECT 1; SELECT $a$;$a$", "/*/**/", "E'\\", "$", "'"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		statements, _ := splitSQL(text)
		for _, statement := range statements {
			if strings.TrimSpace(statement) == "" {
				t.Errorf("an empty statement in %q", text)
			}
		}
	})
}
