package argschema

import "fmt"

// Max is the largest number of levels of objects and arrays that forge reads.
const Max = 64

// DepthError reports the place at which a text exceeds Max levels.
type DepthError struct {
	// Offset is the offset of the first bracket beyond Max.
	Offset int
}

// Error implements error.
func (e *DepthError) Error() string {
	return fmt.Sprintf("nested too deeply at byte %d; want at most %d levels", e.Offset, Max)
}

// CheckDepth returns a *DepthError for a text that nests more than Max levels. It reads
// each byte once and allocates nothing. It does not check that the text is JSON.
func CheckDepth[T ~[]byte | ~string](text T) error {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++ // skip the escaped byte
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > Max {
				return &DepthError{Offset: i}
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}
