// Package jsondepth bounds how deeply JSON from outside nests, before it is decoded.
package jsondepth

import "fmt"

// Max is the most levels of objects and arrays that forge reads.
const Max = 64

// Error says where a text exceeds Max levels.
type Error struct {
	// Offset is that of the first bracket beyond Max.
	Offset int
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("nested too deeply at byte %d; want at most %d levels", e.Offset, Max)
}

// Check returns an *Error for a text that nests more than Max levels. It reads each
// byte once and allocates nothing. It does not check that the text is JSON.
func Check[T ~[]byte | ~string](text T) error {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++ // whatever it escapes
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > Max {
				return &Error{Offset: i}
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}
