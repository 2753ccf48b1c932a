package pages

import "testing"

// A stream needs the scope viewer, so it may not have the parts of a page that needs more.
func TestStreamHasNoTokens(t *testing.T) {
	t.Parallel()
	if kind := pageKinds["tokens"].stream(); kind.name != beatKind.name {
		t.Errorf("the stream of the tokens has the parts %q", kind.parts)
	}
}
