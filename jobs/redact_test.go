package jobs

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/redact"
)

// Errors encode addresses differently: they escape what a path, a query or a fragment
// must not contain, and quote the result.
func TestSecretIsRedactedInAddresses(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"core+/&<=", `core"quoted`, `core\back`, "core blank", "core{}|^", "corë"} {
		r := &redactor{}
		for _, form := range redact.Forms(secret) {
			r.add(form)
		}
		for _, address := range []string{"http://h/" + secret, "http://h/a/" + secret + "/b", "http://h/?q=" + secret, "http://h/#" + secret, "http://h/?q=" + url.QueryEscape(secret), "http://h/" + url.PathEscape(secret)} {
			parsed, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			shown := (&url.Error{Op: "Get", URL: parsed.String(), Err: errors.New("refused")}).Error()
			if clean := r.text(shown); strings.Contains(clean, "cor") || !strings.Contains(clean, redacted) {
				t.Errorf("%s is shown as %s", shown, clean)
			}
		}
	}
}
