package pages

import (
	"testing"
)

func TestLoginRedirectsOnlyToOwnPages(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"": "/", "/jobs": "/jobs", "https://evil.example": "/", "//evil.example": "/", `/\evil.example`: "/", "/a\r\nb": "/", "javascript:alert(1)": "/",
		"/\t/evil.example": "/", "/\n/evil.example": "/", "\t//evil.example": "/", "/\x00/evil.example": "/", "/\x7f/evil.example": "/", "\\\\evil.example": "/",
		`/\/evil.example`: "/", `/jobs\..\..\evil.example`: "/", "/%zz": "/", "/\xff": "/", "///evil.example": "/", "/%2F/evil.example": "/",
		"//?evil.example": "/", "//user@/evil.example": "/",
		// Browsers do not decode these sequences before they look for the host.
		"/%09/evil.example": "/%09/evil.example", "/jobs?q=%2F%2Fevil.example#a": "/jobs?q=%2F%2Fevil.example#a",
	} {
		if got := nextOf(next); got != want {
			t.Errorf("%q leads to %q", next, got)
		}
	}
}
