package redact

import (
	"slices"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"curl -H 'Authorization: Bearer hunter22' https://x.example/": "curl -H 'Authorization: [redacted]' https://x.example/",
		"https://x.example/?a=1&api_key=hunter22&b=2":                 "https://x.example/?a=1&api_key=[redacted]&b=2",
		"https://x.example/?key=hunter22":                             "https://x.example/?key=[redacted]",
		"--password=hunter22":                                         "--password=[redacted]",
		"PGPASSWORD=hunter22 psql -c 'SELECT 1'":                      "PGPASSWORD=[redacted] psql -c 'SELECT 1'",
		`{"token": "hunter22", "n": 1}`:                               `{"token": "[redacted]", "n": 1}`,
		`{"token": "hun\"ter22", "n": 1}`:                             `{"token": "[redacted]", "n": 1}`,
		"grant=x&client_secret=hunter22&n=1":                          "grant=x&client_secret=[redacted]&n=1",
		"ALTER ROLE a PASSWORD 'hunter22'":                            "ALTER ROLE a PASSWORD '[redacted]'",
		"postgres://a:hunter22@db/forge":                              "postgres://a:[redacted]@db/forge",
		"host=db password='hunter 22' user=a":                         "host=db password='[redacted]' user=a",
		// What is no secret.
		"PGPASSWORD=$PW psql":                      "PGPASSWORD=$PW psql",
		"SELECT key, value FROM t WHERE key=1":     "SELECT key, value FROM t WHERE key=1",
		"https://x.example/tokens?page=2":          "https://x.example/tokens?page=2",
		"author: ann":                              "author: ann",
		"DELETE FROM sessions WHERE expires<now()": "DELETE FROM sessions WHERE expires<now()",
	} {
		if got := Text(text); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	words := []string{"backup", "--api-token", "hunter22", "--to", "s3://b", "--verbose-token", "--next", "sh -c 'TOKEN=other-one x'"}
	want := []string{"backup", "--api-token", "[redacted]", "--to", "s3://b", "--verbose-token", "--next", "sh -c 'TOKEN=[redacted] x'"}
	if got := Words(words); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Literals(words); !slices.Equal(got, []string{"hunter22", "other-one"}) {
		t.Errorf("literals %q", got)
	}
	if got := Literals([]string{"Authorization: Bearer hunter22"}); !slices.Contains(got, "hunter22") {
		t.Errorf("literals %q", got)
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://a:b@h/d?password=hunter22&x=1": "postgres://a:[redacted]@h/d?password=[redacted]&x=1",
		"https://h/p?signature=hunter22#f":         "https://h/p?signature=[redacted]#f",
		"https://h/p?page=2":                       "https://h/p?page=2",
	} {
		if got := Address(text); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestValuesInEveryForm(t *testing.T) {
	t.Parallel()
	const secret = `a b/"c"+&`
	text := strings.Join(Forms(secret), " | ")
	if got := Values(text, []string{secret, "x"}, 6); strings.Trim(strings.ReplaceAll(got, Mark, ""), " |") != "" {
		t.Errorf("left: %s", got)
	}
}
