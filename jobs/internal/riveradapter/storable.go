package riveradapter

import "bytes"

// Go encodes a NUL character as nul, which jsonb rejects. replacement is the replacement
// character for invalid bytes.
var (
	nul         = []byte(`\u0000`)
	replacement = []byte(`\ufffd`)
)

// storable returns JSON that jsonb accepts. Otherwise an error with a NUL character would
// permanently keep all results of the same batch from being written.
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
			i++ // skip the escaped character, which may be another backslash
		}
	}
	return clean
}
