package pilot

import "bytes"

// Go writes a NUL of a text as nul, which jsonb refuses; in its place stands what
// replaces bytes that are no text.
var (
	nul         = []byte(`\u0000`)
	replacement = []byte(`\ufffd`)
)

// storable returns JSON that jsonb takes. One worker's error with a NUL in it
// would otherwise keep the results of all that finished with it from being
// written, for ever.
func storable(text []byte) []byte {
	if !bytes.Contains(text, nul) {
		return text
	}
	clean := bytes.Clone(text)
	for i := 0; i+len(nul) <= len(clean); i++ {
		switch {
		case clean[i] != '\\':
		case bytes.HasPrefix(clean[i:], nul):
			i += copy(clean[i:], replacement) - 1
		default:
			i++ // what a backslash escapes, another one perhaps
		}
	}
	return clean
}
