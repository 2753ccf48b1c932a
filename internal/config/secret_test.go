package config

import "testing"

// An address that cannot be read may hold its password anywhere.
func TestBrokenAddressesHideTheirPassword(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://u:hun ter%zz@2@host/db":       "postgres://u:[redacted]@host/db",
		"postgres://u:hunter2/db":                 "postgres://u:[redacted]/db",
		"postgres://u:hunter2@host:notaport/db":   "postgres://u:[redacted]@host:notaport/db",
		"postgres://host:notaport/db?password=hi": "postgres://host:[redacted]/db?password=[redacted]",
		"host=h password='hun ter2":               "host=h password=[redacted]",
		`host=h password='hun\' ter2' user`:       "host=h password=[redacted] user",
		`host=h password=hun\ ter2 user`:          "host=h password=[redacted] user",
	} {
		if got := redactBroken(address); got != want {
			t.Errorf("redactBroken(%q) = %q, want %q", address, got, want)
		}
	}
}
